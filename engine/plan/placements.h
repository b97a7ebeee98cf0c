/// The other placements of a step: which of them fits. A private header of this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/budget.h"
#include "engine/plan/plan.h"

namespace sluice::plan {

enum class Wanted : std::uint8_t { kLeastTraffic, kAny };

struct Search {
  std::optional<Plan> fitting;  ///< as it was wanted
  Plan nearest;                 ///< lacks the least
  bool complete = true;         ///< the budget afforded all of them
  /// With the optimizer working at this other time the draft's own placement fits.
  std::optional<schedule::Update> update{};
};

/// Looks at every other placement of a draft that its limits cannot hold: with as few micro-batches
/// together as the draft has; with its chunks, and with small ones if it needs them and there are
/// not too many; and at its own with the optimizer working at another time. Any of them is found
/// soonest where most is offloaded. Takes half of what the
/// budget has left: to write a unit takes twice as long as to simulate it.
Search search(const Plan& draft, std::int64_t evaluation_batches, Wanted wanted,
              const Budget& budget);

/// The settings in which two placements differ, as they stand in the file:
/// "zero_optimization.offload_param.device: nvme".
std::vector<std::string> settings(const schedule::Options& from, const schedule::Options& to);

}  // namespace sluice::plan
