/// What to say when a tier is too small. A private header of this room.
#pragma once

#include "engine/base/error.h"
#include "engine/plan/placements.h"
#include "engine/plan/plan.h"

namespace sluice::plan {

/// kBudget, of a draft that some tier cannot hold, and what was found instead. At most three lines
/// say what is short and what to change: the placement that fits every tier with the least traffic,
/// or, when none does, what the nearest one lacks. The numbers are in a table below them, and
/// whether the optimizer working at another time would do.
Error refusal(const Plan& draft, const Search& found);

}  // namespace sluice::plan
