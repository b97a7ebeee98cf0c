/// Fits? With how many slots, in how many chunks, how long? = schedule + check + simulate, before
/// anything is allocated.
///
/// Every program of the run is written and checked here, so a run that starts cannot meet one that
/// does not fit. What a setup leaves open (when the optimizer works, how many of `sweep`
/// micro-batches go together where weights are streamed, `sub_group_size: auto`, what is kept of
/// the forward) is decided here too, as it makes the simulated step shortest within the limits
/// (docs/design.md 3.9).
///
/// Thread  any; nothing is kept between calls
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/catalog.h"
#include "engine/schedule/ops.h"
#include "engine/schedule/programs.h"
#include "engine/schedule/setup.h"
#include "prefetch/cost_model.h"
#include "prefetch/program.h"
#include "prefetch/simulate.h"

namespace sluice::plan {

inline constexpr Bytes kEndless = std::numeric_limits<Bytes>::max();

/// Bytes that a run may use. Both are always said: neither follows from the other.
struct Limits {
  constexpr Limits(const prefetch::BytesByTier& of_tiers, Bytes of_host)
      : tiers(of_tiers), host(of_host) {}

  prefetch::BytesByTier tiers;
  Bytes host;  ///< of gpu and cpu together, where the device computes in host memory; else kEndless
};
/// By pool.
using Slots = std::vector<std::uint32_t>;

struct Programs {
  std::shared_ptr<const prefetch::Program> init;
  std::shared_ptr<const prefetch::Program> step;        ///< as most of them are
  std::shared_ptr<const prefetch::Program> evaluation;  ///< may be null
  std::shared_ptr<const prefetch::Program> checkpoint, final;

  /// Of a run whose updates are delayed, where `step` applies what the step before left; else null.
  struct Delayed {
    std::shared_ptr<const prefetch::Program> own_step;  ///< before the first that is delayed
    std::shared_ptr<const prefetch::Program> first_step, drain, checkpoint;
  } delayed;

  /// Those that there are, in an order in which a run may meet them.
  std::vector<std::shared_ptr<const prefetch::Program>> in_order() const;
};

/// What more memory of one tier would buy.
struct Offer {
  prefetch::Tier tier;
  Bytes more;
  std::optional<double>
      step_s;  ///< as it is now: nothing; nullopt: too long to simulate that often
};

/// What drives take of a step, and where that no longer matters.
struct Hiding {
  double drives_s = 0;
  std::optional<double> tokens;  ///< a step whose computing takes as long; nullopt: none does
  bool op_by_op = false;         ///< nothing is computed beside them
};

/// The step with the optimizer working at another time.
struct Alternative {
  schedule::Update update;
  bool allowed = false;
  Bytes lacks = 0;                 ///< for its serial minimum; 0: it fits
  std::optional<double> step_s{};  ///< nullopt: too long to simulate that often
  prefetch::BytesByTier minimum{};
};

/// The other plans that there are, for people to choose from.
struct Prospects {
  std::vector<Offer> offers;
  std::vector<Alternative> alternatives{};
  /// The least that the plan's own update needs, as that of each alternative: what is planned
  /// beyond it depends on measured rates.
  prefetch::BytesByTier minimum{};
};

/// The simulated step.
struct Forecast {
  double step_s = 0;       ///< without checks of what drives carry, as the other plans here
  std::string bound;       ///< the busiest lane
  double bound_share = 0;  ///< of the step
  Hiding hiding{};
  bool has_all = false;               ///< with more memory the plan would be the same
  std::optional<double> checked_s{};  ///< of a run that checks
  std::vector<double> busy{};         ///< per lane, of seconds(); empty: too long to simulate

  double seconds() const { return checked_s.value_or(step_s); }
};

struct Plan {
  schedule::Setup setup;      ///< with everything decided
  schedule::Catalog catalog;  ///< with the pools' slots decided
  prefetch::Lanes lanes;
  Programs programs;
  Slots minimum_slots;  ///< of the serial run
  Limits limits{{}, 0};
  prefetch::BytesByTier minimum{};  ///< of the serial minimum
  prefetch::BytesByTier planned{};  ///< of the pools
  Forecast forecast;
  std::uint64_t work = 0;  ///< units that it took, no more than it was given
};

/// Bytes by tier of the smallest plan: of as few micro-batches together as can be. Throws kBudget
/// when a tier cannot hold it: which tier, by class of bytes, by how much it is short, and which
/// placement would fit. Simulates nothing.
prefetch::BytesByTier require_minimum(const schedule::Setup& setup, const Limits& limits,
                                      std::int64_t evaluation_batches);

/// The same, but throws only when no other placement was found that fits. For a setup whose
/// workspace is not measured yet: that takes memory, which there may only be where some placement
/// fits.
void require_any_placement(const schedule::Setup& setup, const Limits& limits,
                           std::int64_t evaluation_batches);

/// Units of work that one plan and its prospects may take, all drafts and simulated steps together:
/// ten seconds. Counted, so that a plan does not depend on how busy the machine is.
inline constexpr std::uint64_t kPlanningWork = 50'000'000;

/// Throws  as require_minimum()
Plan make_plan(const schedule::Setup& setup, const Limits& limits, std::int64_t evaluation_batches,
               const prefetch::CostModel& cost, std::uint64_t most_work = kPlanningWork);

/// Of a plan that make_plan() gave for this setup, batches and cost. Takes as long as planning
/// does: for those who will read it. `most_work`: with that of the plan.
Prospects prospects(const Plan& plan, const schedule::Setup& asked, std::int64_t evaluation_batches,
                    const prefetch::CostModel& cost, std::uint64_t most_work = kPlanningWork);

/// Bytes that a program moves on a lane, when it skips nothing.
Bytes moved(const prefetch::Program& program, schedule::LaneKind lane);

/// The plan's step on other costs, op by op; and the steady one, overlapped. nullopt: the step is
/// too long for one more look.
prefetch::SteadyStep serial_step(const Plan& plan, const prefetch::CostModel& cost);
std::optional<prefetch::SteadyStep> steady_step(const Plan& plan, const prefetch::CostModel& cost);

/// What drives carry is checked: the forecast is that of the step which does so.
void add_checks(Plan& plan, const prefetch::SteadyStep& checked);

/// Of the plan's step, its ops one after the other. More memory or another order of the update give
/// it nothing.
Forecast serial_forecast(const Plan& plan, const prefetch::CostModel& cost);

/// For people: per tier the minimum and what is planned, the slots of each pool, the simulated
/// step, and when it has worn out drives of an `endurance`.
std::string report(const Plan& plan, std::optional<Bytes> endurance = std::nullopt);
/// What follows it: lines that each begin with a line break.
std::string report(const Prospects& prospects, const Plan& plan);

}  // namespace sluice::plan
