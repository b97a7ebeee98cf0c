/// The bytes behind every slot of every pool: device memory, pinned host memory, extents on drives.
///
/// Owns    all of it, from construction to destruction; entered in the ledger before it is taken.
///         Of the device one allocation, cut into pools: what fits in bytes, fits
///         Pages of host memory come with the first touch: whoever builds this touches all of them
///         before the run, by several threads, and pins them then
/// Thread  construction: one; lookups: any
/// Throws  kBudget when a tier's limit, the machine or its cgroup has not that much
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/memory/ledger.h"
#include "gpu/memory.h"
#include "nvme/store.h"
#include "prefetch/residents.h"

namespace sluice::memory {

class SlotMemory {
 public:
  /// `tags` by pool. `store` may be null when no pool is on nvme; it must outlive this. `reach`: of
  /// the pools on the device.
  SlotMemory(const prefetch::Pools& pools, const std::vector<prefetch::MemoryTag>& tags,
             Ledger& ledger, nvme::Store* store, gpu::Reach reach = gpu::Reach::kHostToo);

  /// The pools on the host, once, when their pages are where they should be.
  void pin();

  /// Of a pool in the gpu or cpu tier.
  std::byte* address(prefetch::PoolId pool, std::uint32_t slot) const;
  /// All slots of a pool in the gpu or cpu tier, one after the other; empty for one without any.
  std::span<std::byte> bytes(prefetch::PoolId pool) const;
  /// Of a pool in the nvme tier.
  const nvme::Extent& extent(prefetch::PoolId pool, std::uint32_t slot) const;
  nvme::Store& store() const { return *store_; }
  const prefetch::Pools& pools() const { return pools_; }

 private:
  prefetch::Pools pools_;
  gpu::DeviceBlock device_;  // all pools of it, one after the other
  std::vector<gpu::PinnedSlab> slabs_;
  std::vector<std::byte*> bases_;                   // by pool; null on nvme
  std::vector<std::vector<nvme::Extent>> extents_;  // by pool, by slot
  nvme::Store* store_;
};

}  // namespace sluice::memory
