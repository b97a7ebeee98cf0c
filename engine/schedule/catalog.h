/// The memory of a run as data: its pools, and its persistent buffers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/schedule/gradient_route.h"
#include "engine/schedule/setup.h"
#include "prefetch/residents.h"

namespace sluice::schedule {

/// One class of transients: which pool a buffer of so many bytes comes from.
class PoolBySize {
 public:
  void add(Bytes bytes, prefetch::PoolId pool) { pools_[bytes] = pool; }
  prefetch::PoolId at(Bytes bytes) const { return pools_.at(bytes); }

 private:
  std::map<Bytes, prefetch::PoolId> pools_;
};

/// Bytes of the buffers that have one size.
struct Sizes {
  Bytes activation = 0;  ///< whole kAlignment: it may go to a drive
  Bytes batch = 0, kept = 0;
  Bytes norms = 0;  ///< of the largest segment
  Bytes loss = sizeof(double);
  Bytes record = 0;
  Bytes receipts = 0;  ///< of a checkpoint: its position, then one for each chunk of each class
};
/// What a checkpoint knows one chunk by; a cache line, for threads that write theirs side by side.
inline constexpr Bytes kReceiptBytes = 64;
/// `classes`: 1 of state, 2 of gradients too.
Bytes receipts_of(const Setup& setup, std::uint64_t classes);
Sizes sizes_of(const Setup& setup);
/// Partial sums of squares of so many elements: one per grain.
constexpr Bytes norm_bytes(std::uint64_t elems) {
  return elems / kGrainElems * sizeof(double);
}

struct Catalog {
  Sizes sizes;
  prefetch::Pools pools;                  ///< slots = 0 until planned
  std::vector<prefetch::MemoryTag> tags;  ///< by pool
  std::shared_ptr<const prefetch::Residents> residents;

  std::vector<GradientRoute> routes;  ///< by segment

  // Persistent buffers.
  prefetch::BufferId control = 0;                            ///< the run's counters
  prefetch::BufferId workspace = 0;                          ///< of the compute lane
  std::vector<prefetch::BufferId> params;                    ///< by segment, at home
  std::vector<std::vector<prefetch::BufferId>> param_parts;  ///< by segment and chunk
  std::vector<std::vector<prefetch::BufferId>> states;       ///< by segment and chunk, at home

  // What a step leaves for the next, where updates are delayed; else empty.
  std::vector<prefetch::BufferId> pending_records;  ///< one, or by segment if each is clipped
  std::vector<prefetch::BufferId> pending;          ///< gradients by segment, at home
  std::vector<std::vector<prefetch::BufferId>> pending_chunks;  ///< their parts

  // Pools of transients; a class that this run does not need has no pools.
  PoolBySize staged_params;    ///< weights on their way from nvme to the device
  PoolBySize device_params;    ///< fetched weights
  PoolBySize contributions;    ///< gradients as the compute lane writes them
  PoolBySize staged;           ///< contributions that wait on the host
  PoolBySize gradients;        ///< at home: the gradient of the step
  PoolBySize gradient_chunks;  ///< of a gradient, copied to where the optimizer works
  PoolBySize saved_gradients;  ///< a chunk of one that waits on the device, to or from a checkpoint
  PoolBySize fresh;  ///< a chunk of new weights in host memory, on its way to where they live
  PoolBySize device_fresh;  ///< the same on the device
  PoolBySize state_chunks;  ///< state brought to the host from where it lives
  prefetch::PoolId activations = prefetch::kNoPool;
  prefetch::PoolId host_activations =
      prefetch::kNoPool;  ///< saved there, or on their way to and from nvme
  prefetch::PoolId disk_activations = prefetch::kNoPool;
  prefetch::PoolId kept = prefetch::kNoPool;    ///< what kept layers leave for backward
  prefetch::PoolId logits = prefetch::kNoPool;  ///< between the two passes of a head
  prefetch::PoolId device_batch = prefetch::kNoPool;
  prefetch::PoolId host_batch = prefetch::kNoPool;
  prefetch::PoolId norms = prefetch::kNoPool;          ///< partial sums of squares of a segment
  prefetch::PoolId device_norms = prefetch::kNoPool;   ///< likewise, of gradients on the device
  prefetch::PoolId device_losses = prefetch::kNoPool;  ///< of one micro-batch each
  prefetch::PoolId records = prefetch::kNoPool;        ///< small numbers: losses, the step's record
  prefetch::PoolId receipts = prefetch::kNoPool;       ///< of a checkpoint
  prefetch::PoolId whole_states = prefetch::kNoPool;   ///< split state put together, of any chunk
};

Catalog make_catalog(const Setup& setup);

}  // namespace sluice::schedule
