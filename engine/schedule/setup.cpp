#include "engine/schedule/setup.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/error.h"

namespace sluice::schedule {

Setup make_setup(shape::Model model, const Options& homes) {
  Setup setup;
  setup.homes = homes;
  const std::uint64_t chunk_elems = zero::chunk_elems(homes.sub_group_size);
  const std::uint64_t chunks = model.parameters() / chunk_elems;
  SLUICE_CHECK(
      chunks <= kMaxChunks, kBudget,
      fmt::format("the optimizer would work in {} chunks of {} of state, at most {} are "
                  "planned: raise zero_optimization.sub_group_size, or use a smaller model",
                  chunks, format_bytes(chunk_elems * zero::kStateBytesPerElem), kMaxChunks));
  for (const shape::Segment& segment : model.segments) {
    setup.layouts.push_back(zero::make_layout(segment));
    setup.chunks.push_back(zero::make_chunks(setup.layouts.back().elems, chunk_elems));
  }
  setup.model = std::move(model);
  return setup;
}

}  // namespace sluice::schedule
