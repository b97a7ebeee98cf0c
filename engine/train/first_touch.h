/// Makes every page of a run's memory before its first step: a step never waits for the kernel to
/// find one, and a machine that lacks them says so at once.
#pragma once

#include "cpu_adam/optimizer.h"
#include "engine/memory/slot_memory.h"
#include "gpu/stream.h"

namespace sluice::train {

/// The host's pools are touched by all threads of the optimizer, the device's on its stream, by as
/// many as compute has. Memory of a device that is not the host's is left alone. On which node a
/// page lies was said when it was mapped (engine/base/nodes.h).
void first_touch(const memory::SlotMemory& memory, const cpu_adam::Optimizer& optimizer,
                 gpu::Stream& compute, unsigned compute_threads);

}  // namespace sluice::train
