/// Decides what a setup leaves open: when the optimizer works, how many micro-batches go together,
/// the chunks, the kept layers, the slots. A private header of this room.
#pragma once

#include <memory>
#include <optional>

#include "engine/plan/slots.h"

namespace sluice::plan {

/// A draft and the slots that were chosen for it.
struct Candidate {
  std::unique_ptr<Plan> draft;  ///< the chooser refers to it
  std::unique_ptr<Chooser> chooser;
  Choice choice;
};

/// What all decisions of one plan share. Each simulates with its part of the budget; what it does
/// not afford is decided by rule: the update that takes less memory, the most micro-batches
/// together that fit, the preferred chunks, no kept layer.
struct Terms {
  const Limits& limits;
  std::int64_t evaluation_batches;
  const prefetch::CostModel& cost;
  Budget& budget;
};

/// nullopt: the budget does not afford to find out what fits. Throws kBudget when nothing does.
std::optional<Candidate> decide(const schedule::Setup& open, const Terms& terms);

/// The best that a setup makes whose update is decided, from its smallest draft, which fits.
Candidate decided(Plan smallest, const schedule::Setup& open, const Terms& terms);

}  // namespace sluice::plan
