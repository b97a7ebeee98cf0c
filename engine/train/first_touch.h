/// Makes every page of a run's memory before its first step: a step never waits for the kernel to
/// find one, and a machine that lacks them says so at once.
#pragma once

#include "cpu_adam/optimizer.h"
#include "engine/memory/slot_memory.h"
#include "gpu/stream.h"

namespace sluice::train {

/// By all threads of the optimizer: a page comes from the memory nearest to the one that first
/// touches it, so every pool is spread over the nodes, as the threads are that work in it. The
/// device's pools by way of its stream; memory of a device that is not the host's is left alone.
void first_touch(const memory::SlotMemory& memory, gpu::Stream& compute,
                 const cpu_adam::Optimizer& optimizer);

}  // namespace sluice::train
