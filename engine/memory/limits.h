/// What the machine has for each tier, and how much of it a run may use.
///
/// [Note: One memory, two tiers] Where the device computes in host memory, the gpu and the cpu tier
/// are cut from the same bytes. A size counts first; a fraction or auto beside it takes at most
/// what it leaves. When neither is a size, each tier may have what it cannot do without, and half
/// of the rest.
#pragma once

#include <array>
#include <limits>

#include "engine/base/host_memory.h"
#include "engine/memory/ledger.h"
#include "engine/memory/options.h"
#include "gpu/device.h"

namespace sluice::memory {

struct Machine {
  gpu::Device device;
  HostMemory host;
  Bytes device_free = std::numeric_limits<Bytes>::max();  ///< of a device with memory of its own
};
Machine this_machine();

/// Bytes by tier.
using Limits = prefetch::BytesByTier;

/// gpu: of what is free of the device's memory; cpu: of what is available now, to the machine and
/// to its cgroup; nvme: of the free bytes of the paths, each filesystem counted once; nothing when
/// one of them is memory that may not be used. Before the needs are known, two fractions may count
/// the same host memory (see the note).
///
/// Throws  kBudget when a size is more than there is, or two are together
Limits resolve_limits(const Options& options, const Machine& machine = this_machine());

/// Of gpu and cpu together, where they are cut from one memory; else without end.
Bytes host_limit(const Options& options, const Machine& machine);

/// The second half of the note: no byte is in two limits any more. `minimum`: what each tier cannot
/// do without, no more than host_limit() in all.
Limits share_host_memory(const Limits& limits, const Limits& minimum, const Options& options,
                         const Machine& machine);

/// What has gone since then of the memory that a device has of its own, and is not the run's: what
/// libraries have taken for good.
///
/// Throws  kDevice when the device cannot be reached
Bytes taken_since(const Machine& machine);

/// Of these the host's memory: those of the gpu tier, too, where the device computes in it.
Bytes host_bytes(const prefetch::BytesByTier& tiers);

/// Before `bytes` of host memory are touched: throws kBudget when that is more than is available,
/// where the system would kill the process.
void check_available(Bytes bytes, const HostMemory& host);

}  // namespace sluice::memory
