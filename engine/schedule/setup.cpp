#include "engine/schedule/setup.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/error.h"

namespace sluice::schedule {

std::uint64_t Setup::chunk_count() const {
  std::uint64_t count = 0;
  for (const auto& segment : chunks) count += segment.size();
  return count;
}

double Setup::step_flops() const {
  double forward = 0;
  for (const shape::Block& block : model->blocks) {
    forward += shape::forward_flops(*model, block, micro_batch_size, seq_len);
  }
  return 3 * forward * static_cast<double>(micro_batches);
}

Setup make_setup(shape::Model model, const Options& homes) {
  Setup setup;
  setup.homes = homes;
  if (!homes.offload_gradient) {
    setup.homes.offload_gradient =
        setup.updates_on_device() ? GradientHome::kNone : GradientHome::kCpu;
  }
  const std::uint64_t chunk_elems = zero::chunk_elems(homes.sub_group_size);
  const std::uint64_t chunks = model.parameters() / chunk_elems;
  SLUICE_CHECK(
      chunks <= kMaxChunks, kBudget,
      fmt::format("the optimizer would work in {} chunks of {} of state, at most {} are "
                  "planned: raise zero_optimization.sub_group_size, or use a smaller model",
                  chunks, format_bytes(chunk_elems * zero::kStateBytesPerElem), kMaxChunks));
  for (const shape::Segment& segment : model.segments) {
    setup.layouts.push_back(zero::make_layout(segment));
  }
  setup.uses.resize(model.segments.size(), 0);
  for (const shape::Block& block : model.blocks) {
    for (const int segment : block.segments) ++setup.uses[static_cast<std::size_t>(segment)];
  }
  if (homes.recompute == Recompute::kNone) setup.kept_layers = model.decoder.layers;
  setup.model = std::make_shared<const shape::Model>(std::move(model));
  return with_chunks(std::move(setup), homes.sub_group_size);
}

Setup with_chunks(Setup setup, std::optional<Bytes> sub_group_size) {
  setup.homes.sub_group_size = sub_group_size;
  setup.chunks.clear();
  for (const zero::Layout& layout : setup.layouts) {
    setup.chunks.push_back(zero::make_chunks(layout.elems, zero::chunk_elems(sub_group_size)));
  }
  return setup;
}

}  // namespace sluice::schedule
