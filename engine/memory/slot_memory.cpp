#include "engine/memory/slot_memory.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/memory/limits.h"

namespace sluice::memory {

using prefetch::Tier;

namespace {

Bytes bytes_of(const prefetch::Pool& pool) {
  return pool.slot * pool.slots;
}

/// What the pools take once every page was touched.
prefetch::BytesByTier bytes_of(const prefetch::Pools& pools) {
  prefetch::BytesByTier bytes{};
  for (const prefetch::Pool& pool : pools) bytes[index(pool.tier)] += bytes_of(pool);
  return bytes;
}

}  // namespace

SlotMemory::SlotMemory(const prefetch::Pools& pools, const std::vector<prefetch::MemoryTag>& tags,
                       Ledger& ledger, nvme::Store* store, gpu::Reach reach)
    : pools_(pools), bases_(pools.size(), nullptr), extents_(pools.size()), store_(store) {
  const prefetch::BytesByTier bytes = bytes_of(pools_);
  check_available(host_bytes(bytes), host_memory());
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    SLUICE_CHECK(pools_[i].slot % kAlignment == 0, kLogic, "a slot of no whole pages");
    ledger.reserve(pools_[i].tier, tags[i], bytes_of(pools_[i]));
  }
  device_ = gpu::DeviceHeap(ledger.limit(Tier::kGpu), reach).allocate(bytes[index(Tier::kGpu)]);
  std::byte* next_on_device = device_.data();
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const prefetch::Pool& pool = pools_[i];
    if (bytes_of(pool) == 0) continue;
    switch (pool.tier) {
      case Tier::kGpu:
        bases_[i] = next_on_device;
        next_on_device += bytes_of(pool);
        break;
      case Tier::kCpu:
        bases_[i] = slabs_.emplace_back(bytes_of(pool), gpu::Pin::kLater).data();
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

void SlotMemory::pin() {
  for (gpu::PinnedSlab& slab : slabs_) slab.pin();
}

std::byte* SlotMemory::address(prefetch::PoolId pool, std::uint32_t slot) const {
  SLUICE_CHECK(pool < pools_.size() && slot < pools_[pool].slots && bases_[pool] != nullptr, kLogic,
               fmt::format("slot {} of pool {} has no address", slot, pool));
  return bases_[pool] + pools_[pool].slot * slot;
}

std::span<std::byte> SlotMemory::bytes(prefetch::PoolId pool) const {
  SLUICE_CHECK(pool < pools_.size(), kLogic, fmt::format("there is no pool {}", pool));
  if (bases_[pool] == nullptr) return {};
  return {bases_[pool], bytes_of(pools_[pool])};
}

const nvme::Extent& SlotMemory::extent(prefetch::PoolId pool, std::uint32_t slot) const {
  SLUICE_CHECK(pool < pools_.size() && slot < extents_[pool].size(), kLogic,
               fmt::format("slot {} of pool {} has no extent", slot, pool));
  return extents_[pool][slot];
}

}  // namespace sluice::memory
