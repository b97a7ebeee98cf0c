#include "engine/schedule/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/schedule/batch.h"
#include "engine/shape/kept.h"

namespace sluice::schedule {

using prefetch::Buffer;
using prefetch::BufferId;
using prefetch::MemoryTag;
using prefetch::PoolId;
using prefetch::Tier;

namespace {

template <class Home>
Tier tier_of(Home home) {
  switch (home) {
    case Home::kNone:
      return Tier::kGpu;
    case Home::kCpu:
      return Tier::kCpu;
    case Home::kNvme:
      return Tier::kNvme;
  }
  return Tier::kCpu;
}

/// Declares pools while the catalog is written.
class Writer {
 public:
  explicit Writer(const Setup& setup) : setup_(setup) {}

  Catalog write() {
    fixed_pools();
    parameters();
    gradients();
    states();
    table_->seal();
    catalog_.residents = std::move(table_);
    return std::move(catalog_);
  }

 private:
  PoolId pool(Tier tier, MemoryTag tag, std::string_view what, Bytes bytes) {
    const Bytes slot = round_up(bytes, kAlignment);
    catalog_.pools.push_back(
        {fmt::format("{} {} {}", name_of(tier), what, format_bytes(slot)), tier, slot, 0});
    catalog_.tags.push_back(tag);
    return static_cast<PoolId>(catalog_.pools.size() - 1);
  }

  /// One pool per distinct size, smallest first.
  void pool_per_size(PoolBySize& pools, Tier tier, MemoryTag tag, std::string_view what,
                     std::vector<Bytes> sizes) {
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (const Bytes bytes : sizes) pools.add(bytes, pool(tier, tag, what, bytes));
  }

  std::vector<Bytes> segment_bytes(Bytes per_elem) const {
    std::vector<Bytes> sizes;
    for (const auto& layout : setup_.layouts) sizes.push_back(layout.elems * per_elem);
    return sizes;
  }

  std::vector<Bytes> chunk_bytes(Bytes per_elem) const {
    std::vector<Bytes> sizes;
    for (const auto& chunks : setup_.chunks) {
      for (const auto& chunk : chunks) sizes.push_back(chunk.elems * per_elem);
    }
    return sizes;
  }

  void fixed_pools() {
    const Sizes& sizes = catalog_.sizes = sizes_of(setup_);
    catalog_.activations =
        pool(Tier::kGpu, MemoryTag::kActivation, "activations", sizes.activation);
    if (setup_.saves_activations_on_host()) {
      catalog_.host_activations =
          pool(Tier::kCpu, MemoryTag::kActivation, "saved activations", sizes.activation);
    }
    if (setup_.homes.offload_activation == ActivationHome::kNvme) {
      catalog_.disk_activations =
          pool(Tier::kNvme, MemoryTag::kActivation, "saved activations", sizes.activation);
    }
    if (setup_.kept_layers > 0) {
      catalog_.kept = pool(Tier::kGpu, MemoryTag::kKept, "kept layers", sizes.kept);
    }
    if (setup_.keeps_logits) {
      catalog_.logits = pool(Tier::kGpu, MemoryTag::kKept, "kept logits", setup_.logits);
    }
    catalog_.host_batch = pool(Tier::kCpu, MemoryTag::kBatch, "batches", sizes.batch);
    catalog_.device_batch = separate_ ? pool(Tier::kGpu, MemoryTag::kBatch, "batches", sizes.batch)
                                      : catalog_.host_batch;
    catalog_.norms = pool(Tier::kCpu, MemoryTag::kControl, "norms", sizes.norms);
    catalog_.records = pool(Tier::kCpu, MemoryTag::kControl, "records", sizes.record);
    catalog_.device_losses =
        separate_ ? pool(Tier::kGpu, MemoryTag::kControl, "losses", sizes.loss) : catalog_.records;
    if (separate_ && setup_.homes.offload_gradient == GradientHome::kNone) {
      catalog_.device_norms = pool(Tier::kGpu, MemoryTag::kControl, "norms", sizes.norms);
    }
    catalog_.receipts = pool(Tier::kCpu, MemoryTag::kControl, "receipts", sizes.receipts);
    catalog_.control = table_->buffer({catalog_.records, sizes.record, MemoryTag::kControl});
    const PoolId workspace =
        pool(Tier::kGpu, MemoryTag::kWorkspace, "workspace", std::max<Bytes>(setup_.workspace, 1));
    catalog_.workspace =
        table_->buffer({workspace, catalog_.pools[workspace].slot, MemoryTag::kWorkspace});
  }

  void parameters() {
    const Bytes elem = size_of(setup_.compute);
    const Tier home = tier_of(setup_.homes.offload_param);
    PoolBySize homes;
    pool_per_size(homes, home, MemoryTag::kParam, "parameters", segment_bytes(elem));
    for (std::size_t s = 0; s < setup_.layouts.size(); ++s) {
      const Bytes bytes = setup_.layouts[s].elems * elem;
      const BufferId param = table_->buffer({homes.at(bytes), bytes, MemoryTag::kParam});
      catalog_.params.push_back(param);
      auto& parts = catalog_.param_parts.emplace_back();
      for (const auto& chunk : setup_.chunks[s]) {
        parts.push_back(table_->part_of(param, chunk.first_elem * elem, chunk.elems * elem));
      }
    }
    if (setup_.streams_params()) {
      pool_per_size(catalog_.device_params, Tier::kGpu, MemoryTag::kParam, "fetched parameters",
                    segment_bytes(elem));
    }
    if (home == Tier::kNvme && separate_) {
      pool_per_size(catalog_.staged_params, Tier::kCpu, MemoryTag::kParam, "staged parameters",
                    segment_bytes(elem));
    }
    // Those of a delayed update wait until the step has read the old ones, wherever they go then.
    const bool wait = setup_.delays();
    if (out_of_the_hosts_reach(home) || (wait && !works_on_device())) {
      pool_per_size(catalog_.fresh, Tier::kCpu, MemoryTag::kParam, "fresh parameters",
                    chunk_bytes(elem));
    }
    if ((home != Tier::kGpu || wait) && works_on_device()) {
      pool_per_size(catalog_.device_fresh, Tier::kGpu, MemoryTag::kParam, "fresh parameters",
                    chunk_bytes(elem));
    }
  }

  void gradients() {
    const Bytes elem = size_of(setup_.compute);
    std::vector<Bytes> contributions, staged, whole, copied;
    Tier home = Tier::kCpu;
    for (int s = 0; s < static_cast<int>(setup_.layouts.size()); ++s) {
      const GradientRoute route = gradient_route(setup_, s);
      const std::uint64_t elems = setup_.segment_elems(s);
      home = route.home;
      if (!route.apart) whole.push_back(elems * size_of(route.dtype));
      if (route.written_on_device()) contributions.push_back(elems * elem);
      if (route.staged()) staged.push_back(elems * elem);
      if (route.copied_by_chunk) {
        for (const auto& chunk : setup_.chunks[static_cast<std::size_t>(s)]) {
          copied.push_back(chunk.elems * size_of(route.dtype));
        }
      }
      catalog_.routes.push_back(route);
    }
    const auto tag = MemoryTag::kGradient;
    pool_per_size(catalog_.contributions, Tier::kGpu, tag, "gradient contributions", contributions);
    pool_per_size(catalog_.staged, Tier::kCpu, tag, "staged contributions", staged);
    pool_per_size(catalog_.gradients, home, tag, "gradients", whole);
    const Tier optimizer = setup_.updates_on_device() ? Tier::kGpu : Tier::kCpu;
    pool_per_size(catalog_.gradient_chunks, optimizer, tag, "gradient chunks", copied);
    if (setup_.delays()) pending(home);
  }

  void pending(Tier home) {
    const std::size_t records = setup_.clips_segments ? setup_.layouts.size() : 1;
    for (std::size_t i = 0; i < records; ++i) {
      catalog_.pending_records.push_back(
          table_->buffer({catalog_.records, catalog_.sizes.record, MemoryTag::kControl}));
    }
    std::vector<Bytes> saved;
    for (std::size_t s = 0; s < setup_.layouts.size(); ++s) {
      const Bytes elem = size_of(catalog_.routes[s].dtype);
      const Bytes bytes = setup_.layouts[s].elems * elem;
      const BufferId whole =
          table_->buffer({catalog_.gradients.at(bytes), bytes, MemoryTag::kGradient});
      catalog_.pending.push_back(whole);
      auto& parts = catalog_.pending_chunks.emplace_back();
      for (const auto& chunk : setup_.chunks[s]) {
        parts.push_back(table_->part_of(whole, chunk.first_elem * elem, chunk.elems * elem));
        saved.push_back(chunk.elems * elem);
      }
    }
    if (!out_of_the_hosts_reach(home)) return;
    pool_per_size(catalog_.saved_gradients, Tier::kCpu, MemoryTag::kGradient, "saved gradients",
                  saved);
  }

  void states() {
    const Tier home = tier_of(setup_.homes.offload_optimizer);
    const Bytes per_elem = setup_.state_bytes_per_elem();
    PoolBySize homes;
    pool_per_size(homes, home, MemoryTag::kState, "state", chunk_bytes(per_elem));
    for (const auto& chunks : setup_.chunks) {
      auto& states = catalog_.states.emplace_back();
      for (const auto& chunk : chunks) {
        const Bytes bytes = chunk.elems * per_elem;
        states.push_back(table_->buffer({homes.at(bytes), bytes, MemoryTag::kState}));
      }
    }
    if (out_of_the_hosts_reach(home)) {
      pool_per_size(catalog_.state_chunks, Tier::kCpu, MemoryTag::kState, "state chunks",
                    chunk_bytes(per_elem));
    }
    if (setup_.splits_masters()) {
      const std::vector<Bytes> whole = chunk_bytes(zero::kStateBytesPerElem);
      catalog_.whole_states = pool(Tier::kCpu, MemoryTag::kState, "whole state chunks",
                                   *std::max_element(whole.begin(), whole.end()));
    }
  }

  /// The optimizer does, in memory that the host does not reach.
  bool works_on_device() const { return separate_ && setup_.updates_on_device(); }
  bool out_of_the_hosts_reach(Tier home) const {
    return home == Tier::kNvme || (home == Tier::kGpu && separate_);
  }

  const Setup& setup_;
  const bool separate_ = setup_.sharing == Sharing::kSeparate;
  Catalog catalog_;
  std::shared_ptr<prefetch::Residents> table_ = std::make_shared<prefetch::Residents>();
};

}  // namespace

Bytes receipts_of(const Setup& setup, std::uint64_t classes) {
  return (1 + classes * setup.chunk_count()) * kReceiptBytes;
}

Sizes sizes_of(const Setup& setup) {
  const auto tokens = static_cast<Bytes>(setup.micro_batch_tokens());
  std::uint64_t largest = 0;
  for (const auto& layout : setup.layouts) largest = std::max(largest, layout.elems);
  const auto hidden = static_cast<Bytes>(setup.model->decoder.hidden);
  return {
      .activation = round_up(tokens * hidden * size_of(setup.compute), kAlignment),
      .batch = batch_bytes(setup.micro_batch_tokens()),
      .kept = shape::kept_of(setup.model->decoder, setup.micro_batch_tokens(), setup.compute).bytes,
      .norms = norm_bytes(largest),
      .record = 256,
      .receipts = receipts_of(setup, setup.delays() ? 2 : 1)};
}

Catalog make_catalog(const Setup& setup) {
  return Writer(setup).write();
}

}  // namespace sluice::schedule
