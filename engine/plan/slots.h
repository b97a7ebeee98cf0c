/// How many slots each pool gets. A private header of this room.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/plan/budget.h"
#include "engine/plan/plan.h"
#include "prefetch/simulate.h"

namespace sluice::plan {

/// Simulated steps of one plan by its slot counts, each simulated once.
class Trials {
 public:
  /// `share`: so much of the budget at most. Keeps references to all three.
  Trials(const Plan& plan, const prefetch::CostModel& cost, Budget& budget, std::uint64_t share);

  /// Seconds of a steady step; infinite once the share is spent.
  double seconds(const Slots& slots);
  /// Looks at the lanes too, whatever the share. nullopt: the budget does not afford it.
  std::optional<prefetch::SteadyStep> look(const Slots& slots);
  /// So many trials are left.
  std::uint64_t left() const;

 private:
  const Plan& plan_;
  const prefetch::CostModel& cost_;
  Budget& budget_;
  std::uint64_t each_;   // units of one trial
  std::uint64_t share_;  // units that are left
  std::map<Slots, double> seen_;
};

struct Choice {
  Slots slots;
  double seconds = 0;  ///< infinite when it was not simulated
};

/// Chooses slots for one draft under any limits that hold its serial minimum.
///
/// First it finds the least that runs as fast as memory without end, a hundredth aside. What is
/// then too much for a tier is taken from the pools of that tier that lose least. Where the program
/// is too long for that, or it helps by more than a hundredth, each pool gets its share
/// (docs/design.md 3.9).
class Chooser {
 public:
  Chooser(const Plan& draft, const prefetch::CostModel& cost, Budget& budget, std::uint64_t share);

  Choice choose(const Limits& limits);
  Trials& trials() { return trials_; }

 private:
  Choice trimmed();
  void trim(Slots& slots);
  std::uint32_t fewest(Slots slots, prefetch::PoolId pool, double bound);
  Choice squeezed(Choice from, const Limits& limits);
  Choice without_a_few(const Choice& from, const std::vector<prefetch::Tier>& tiers, Bytes excess);
  Slots by_share(const Limits& limits);
  Choice tried(Slots slots);

  const Plan& draft_;
  Slots ample_;
  Trials trials_;
  std::optional<Choice> trimmed_;
};

prefetch::BytesByTier bytes_by_tier(const prefetch::Pools& pools, const Slots& slots);

}  // namespace sluice::plan
