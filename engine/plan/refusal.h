/// What to say when a tier is too small. A private header of this room.
#pragma once

#include "engine/base/error.h"
#include "engine/plan/budget.h"
#include "engine/plan/plan.h"

namespace sluice::plan {

struct Refusal {
  Error error;
  /// Another placement of the same step does, or the budget did not afford to look at all of them.
  bool another_may_fit;
};

/// kBudget, of a draft that some tier cannot hold. At most three lines say what is short and what
/// to change: the placement that fits every tier with the least traffic, or, when none does, what
/// the nearest one lacks. The numbers are in a table below them.
Refusal refusal(const Plan& draft, std::int64_t evaluation_batches, Budget& budget);

}  // namespace sluice::plan
