/// What the machine has for each tier, and how much of it a run may use.
#pragma once

#include <array>

#include "engine/memory/ledger.h"
#include "engine/memory/options.h"

namespace sluice::memory {

/// Bytes by tier. gpu: of the device's memory; cpu: of what is available now; nvme: of the free
/// bytes of the paths, each filesystem counted once. Throws kBudget when the limit of
/// gpu or cpu is more than the machine has; of nvme, the store refuses what it cannot hold.
std::array<Bytes, kTiers> resolve_limits(const Options& options);

}  // namespace sluice::memory
