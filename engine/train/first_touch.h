/// Makes every page of a run's memory before its first step: a step never waits for the kernel to
/// find one, and a machine that lacks them says so at once.
#pragma once

#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/memory/slot_memory.h"
#include "gpu/stream.h"

namespace sluice::train {

/// Each page comes from the memory nearest to the kind of thread that first touches it: the
/// device's pools to the stream of compute, state and gradients to the optimizer's threads, the
/// rest to the caller. `tags` by pool. Memory of a device that is not the host's is left alone.
void first_touch(const memory::SlotMemory& memory, const std::vector<prefetch::MemoryTag>& tags,
                 gpu::Stream& compute, const cpu_adam::Optimizer& optimizer);

}  // namespace sluice::train
