#include "engine/schedule/setup.h"

#include <utility>

namespace sluice::schedule {

Setup make_setup(shape::Model model, const Options& homes) {
  Setup setup;
  setup.homes = homes;
  const std::uint64_t chunk_elems = zero::chunk_elems(homes.sub_group_size);
  for (const shape::Segment& segment : model.segments) {
    setup.layouts.push_back(zero::make_layout(segment));
    setup.chunks.push_back(zero::make_chunks(setup.layouts.back().elems, chunk_elems));
  }
  setup.model = std::move(model);
  return setup;
}

}  // namespace sluice::schedule
