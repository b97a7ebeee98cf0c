/// The two ops that update a chunk.
#pragma once

#include "engine/schedule/ops.h"
#include "engine/schedule/setup.h"

namespace sluice::schedule {

inline bool is_adam(OpId id) {
  return id == OpId::kAdam || id == OpId::kAdamSplit;
}

/// That of a run.
inline OpId adam_of(const Setup& setup) {
  return setup.splits_masters() ? OpId::kAdamSplit : OpId::kAdam;
}

}  // namespace sluice::schedule
