/// Fits? With how many slots? = schedule + check, before anything is allocated.
///
/// Every program of the run is written and checked here, so a run that starts cannot meet one that
/// does not fit. Each pool gets its serial minimum; what a tier has left goes, one slot at a time,
/// to the pools that are furthest from 1.5 times theirs (docs/design.md 3.5 and 3.9).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "engine/schedule/catalog.h"
#include "engine/schedule/programs.h"
#include "engine/schedule/setup.h"
#include "prefetch/program.h"

namespace sluice::plan {

/// Bytes that a run may use, by prefetch::Tier.
using Limits = std::array<Bytes, 3>;

struct Programs {
  std::shared_ptr<const prefetch::Program> init, step, evaluation,
      final;  ///< evaluation may be null
};

struct Plan {
  schedule::Catalog catalog;  ///< with the pools' slots decided
  prefetch::Lanes lanes;
  Programs programs;
  Limits limits{};
  Limits minimum{};  ///< bytes of the serial minimum, by tier
  Limits planned{};  ///< bytes of the pools, by tier
};

/// Throws kBudget when a tier cannot hold the serial minimum: which tier, which class of bytes is
/// the largest there, by how much it is short, and what to change.
Plan make_plan(const schedule::Setup& setup, const Limits& limits, std::int64_t evaluation_batches);

/// For people: per tier the minimum, what is planned, and a warning where a budget is tight.
std::string report(const Plan& plan);

}  // namespace sluice::plan
