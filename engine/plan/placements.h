/// The other placements of a step: which of them fits. A private header of this room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/plan/budget.h"
#include "engine/plan/plan.h"

namespace sluice::plan {

struct Search {
  std::optional<Plan> fitting;  ///< with the least traffic
  Plan nearest;                 ///< lacks the least
  bool complete = true;         ///< the budget afforded all of them
};

/// Looks at every other placement of a draft that its limits cannot hold: with as few micro-batches
/// together as the draft has; with its chunks, and with small ones if it needs them and there are
/// not too many.
Search search(const Plan& draft, std::int64_t evaluation_batches, Budget& budget);

/// The settings in which two placements differ, as they stand in the file:
/// "zero_optimization.offload_param.device: nvme".
std::vector<std::string> settings(const schedule::Options& from, const schedule::Options& to);

}  // namespace sluice::plan
