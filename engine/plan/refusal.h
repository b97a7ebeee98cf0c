/// What to say when a tier is too small. A private header of this room.
#pragma once

#include "engine/base/error.h"
#include "engine/plan/plan.h"

namespace sluice::plan {

struct Refusal {
  Error error;
  bool another_fits;  ///< another placement of the same step
};

/// kBudget, of a draft that some tier cannot hold: what the tier needs, by class of bytes, what it
/// has, and the settings of the placement that fits every tier with the least traffic; or, when
/// none does, what the smallest one lacks.
Refusal refusal(const Plan& draft, std::int64_t evaluation_batches);

}  // namespace sluice::plan
