#include "engine/plan/plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/plan/choose.h"
#include "engine/plan/draft.h"
#include "engine/plan/hiding.h"
#include "engine/plan/placements.h"
#include "engine/plan/refusal.h"
#include "prefetch/simulate.h"

namespace sluice::plan {
namespace {

using prefetch::PoolId;
using prefetch::Tier;
using schedule::Setup;

static_assert(kPlanningWork >= kChunkChoices * kLongestDraft,
              "every size of chunks is looked at, of one update");

/// Nothing is left that more memory could be used for.
bool has_all(Candidate& candidate) {
  const Setup& setup = candidate.draft->setup;
  if (setup.may_keep_logits() && !setup.keeps_logits) return false;
  if (setup.may_keep() && setup.kept_layers < setup.model->decoder.layers) return false;
  const Limits endless{{kEndless, kEndless, kEndless}, kEndless};
  return candidate.chooser->choose(endless).slots == candidate.choice.slots;
}

/// Of each lane, and which is the busiest.
void set_busy(Forecast& forecast, const Plan& plan, const std::vector<double>& busy) {
  forecast.busy = busy;
  const auto busiest = std::max_element(busy.begin(), busy.end());
  forecast.bound = plan.lanes[static_cast<std::size_t>(busiest - busy.begin())].name;
  const double seconds = forecast.seconds();
  forecast.bound_share = seconds > 0 ? std::min(1.0, *busiest / seconds) : 0;
}

Forecast forecast(Candidate& candidate, const prefetch::CostModel& cost) {
  Forecast forecast;
  const Plan& plan = *candidate.draft;
  const auto step = candidate.chooser->trials().look(candidate.choice.slots);
  if (!step) return forecast;
  forecast.step_s = step->seconds;
  set_busy(forecast, plan, step->busy);
  forecast.hiding = hide_drives(*plan.programs.step, plan.setup, cost);
  forecast.has_all = has_all(candidate);
  return forecast;
}

}  // namespace

std::vector<std::shared_ptr<const prefetch::Program>> Programs::in_order() const {
  std::vector<std::shared_ptr<const prefetch::Program>> all;
  for (const auto& program : {init, delayed.own_step, delayed.first_step, step, delayed.checkpoint,
                              delayed.drain, evaluation, checkpoint, final}) {
    if (program) all.push_back(program);
  }
  return all;
}

prefetch::BytesByTier require_minimum(const Setup& setup, const Limits& limits,
                                      std::int64_t evaluation_batches) {
  Budget budget(kPlanningWork);
  const auto draft = smallest_draft(setup, limits, evaluation_batches, budget);
  if (missing(*draft, limits) == 0) return draft->minimum;
  throw refusal(*draft, search(*draft, evaluation_batches, Wanted::kLeastTraffic, budget));
}

void require_any_placement(const Setup& setup, const Limits& limits,
                           std::int64_t evaluation_batches) {
  std::optional<Error> refused;
  for (const Setup& choice : update_choices(setup)) {
    Budget budget(kPlanningWork);
    const auto draft = smallest_draft(choice, limits, evaluation_batches, budget);
    if (missing(*draft, limits) == 0) return;
    const Search found = search(*draft, evaluation_batches, Wanted::kAny, budget);
    if (found.fitting) return;
    refused = refusal(*draft, found);
  }
  throw Error(*refused);
}

Plan make_plan(const Setup& setup, const Limits& limits, std::int64_t evaluation_batches,
               const prefetch::CostModel& cost, std::uint64_t most_work) {
  Budget budget(most_work);
  std::optional<Candidate> chosen = decide(setup, {limits, evaluation_batches, cost, budget});
  SLUICE_CHECK(chosen, kLogic, "the budget of the plan does not afford its drafts");
  Forecast expected = forecast(*chosen, cost);
  Plan plan = std::move(*chosen->draft);
  plan.forecast = std::move(expected);
  for (PoolId i = 0; i < plan.catalog.pools.size(); ++i) {
    plan.catalog.pools[i].slots = chosen->choice.slots[i];
  }
  plan.planned = bytes_by_tier(plan.catalog.pools, chosen->choice.slots);
  plan.work = most_work - budget.left();

  prefetch::Initialised initialised(*plan.catalog.residents);
  for (const auto& program : plan.programs.in_order()) {
    prefetch::check(*program, plan.catalog.pools, plan.lanes, initialised);
  }
  return plan;
}

Bytes moved(const prefetch::Program& program, schedule::LaneKind lane) {
  double bytes = 0;
  for (const prefetch::Op& op : program.ops()) {
    if (op.lane == schedule::lane_of(lane)) bytes += op.cost.bytes;
  }
  return static_cast<Bytes>(bytes);
}

prefetch::SteadyStep serial_step(const Plan& plan, const prefetch::CostModel& cost) {
  prefetch::SteadyStep step{prefetch::serial_seconds(std::span(&plan.programs.step, 1), cost),
                            std::vector<double>(plan.lanes.size(), 0.0)};
  for (const prefetch::Op& op : plan.programs.step->ops()) step.busy[op.lane] += cost.seconds(op);
  return step;
}

Forecast serial_forecast(const Plan& plan, const prefetch::CostModel& cost) {
  const prefetch::SteadyStep step = serial_step(plan, cost);
  Forecast forecast;
  forecast.step_s = step.seconds;
  set_busy(forecast, plan, step.busy);
  const auto busy = [&](schedule::LaneKind lane) { return step.busy[schedule::lane_of(lane)]; };
  forecast.hiding = {busy(schedule::LaneKind::kNvmeRead) + busy(schedule::LaneKind::kNvmeWrite),
                     std::nullopt, true};
  forecast.has_all = true;
  return forecast;
}

void add_checks(Plan& plan, const prefetch::SteadyStep& checked) {
  plan.forecast.checked_s = checked.seconds;
  set_busy(plan.forecast, plan, checked.busy);
}

std::optional<prefetch::SteadyStep> steady_step(const Plan& plan, const prefetch::CostModel& cost) {
  Slots slots;
  for (const prefetch::Pool& pool : plan.catalog.pools) slots.push_back(pool.slots);
  Budget budget(kPlanningWork - std::min(plan.work, kPlanningWork));
  return Trials(plan, cost, budget, 0).look(slots);
}

}  // namespace sluice::plan
