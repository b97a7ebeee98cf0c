#include "engine/zero/layout.h"

#include "engine/base/units.h"

namespace sluice::zero {

Layout make_layout(const shape::Segment& segment) {
  Layout layout;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < segment.tensors.size(); ++i) {
    const std::uint64_t numel = segment.tensors[i].numel();
    layout.tensors.push_back({static_cast<int>(i), at, numel});
    at = round_up(at + numel, kTensorAlignElems);
  }
  layout.elems = round_up(at, kGrainElems);
  return layout;
}

}  // namespace sluice::zero
