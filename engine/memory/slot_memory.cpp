#include "engine/memory/slot_memory.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/memory/limits.h"

namespace sluice::memory {

using prefetch::Tier;

namespace {

/// What the pools take of host memory once every page was touched.
Bytes host_bytes(const prefetch::Pools& pools) {
  const bool unified = gpu::device().unified;
  Bytes total = 0;
  for (const prefetch::Pool& pool : pools) {
    const bool host = pool.tier == Tier::kCpu || (pool.tier == Tier::kGpu && unified);
    if (host) total += pool.slot * pool.slots;
  }
  return total;
}

}  // namespace

SlotMemory::SlotMemory(const prefetch::Pools& pools, const std::vector<prefetch::MemoryTag>& tags,
                       Ledger& ledger, nvme::Store* store, gpu::Reach reach)
    : pools_(pools),
      heap_(ledger.limit(Tier::kGpu), reach),
      bases_(pools.size(), nullptr),
      extents_(pools.size()),
      store_(store) {
  check_available(host_bytes(pools_), host_memory());
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const prefetch::Pool& pool = pools_[i];
    const Bytes bytes = pool.slot * pool.slots;
    if (bytes == 0) continue;
    ledger.reserve(pool.tier, tags[i], bytes);
    switch (pool.tier) {
      case Tier::kGpu:
        bases_[i] = blocks_.emplace_back(heap_.allocate(bytes)).data();
        break;
      case Tier::kCpu:
        bases_[i] = slabs_.emplace_back(bytes).data();
        break;
      case Tier::kNvme:
        SLUICE_CHECK(store_ != nullptr, kLogic, "a pool is on nvme and there is no store");
        for (std::uint32_t slot = 0; slot < pool.slots; ++slot) {
          extents_[i].push_back(store_->allocate(pool.slot));
        }
        break;
    }
  }
}

std::byte* SlotMemory::address(prefetch::PoolId pool, std::uint32_t slot) const {
  SLUICE_CHECK(pool < pools_.size() && slot < pools_[pool].slots && bases_[pool] != nullptr, kLogic,
               fmt::format("slot {} of pool {} has no address", slot, pool));
  return bases_[pool] + pools_[pool].slot * slot;
}

std::span<std::byte> SlotMemory::bytes(prefetch::PoolId pool) const {
  SLUICE_CHECK(pool < pools_.size(), kLogic, fmt::format("there is no pool {}", pool));
  if (bases_[pool] == nullptr) return {};
  return {bases_[pool], pools_[pool].slot * pools_[pool].slots};
}

const nvme::Extent& SlotMemory::extent(prefetch::PoolId pool, std::uint32_t slot) const {
  SLUICE_CHECK(pool < pools_.size() && slot < extents_[pool].size(), kLogic,
               fmt::format("slot {} of pool {} has no extent", slot, pool));
  return extents_[pool][slot];
}

}  // namespace sluice::memory
