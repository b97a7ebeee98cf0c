#include "engine/plan/plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "engine/plan/draft.h"
#include "engine/plan/refusal.h"
#include "engine/plan/slots.h"

namespace sluice::plan {
namespace {

using prefetch::PoolId;
using prefetch::Tier;
using schedule::Setup;

/// Ops that may be simulated to choose one plan: a quarter of a minute, of which most models need
/// two seconds.
constexpr std::uint64_t kSimulatedOps = 20'000'000;
/// A program longer than this is not simulated at all.
constexpr std::uint64_t kLongestSimulated = 500'000;
/// Another size of chunks must win by this much.
constexpr double kBetter = 0.99;
/// Each plan is trimmed to within 1% of its best: less than this says nothing of two of them.
constexpr double kAlike = 1.02;
constexpr Bytes kOffer = 1_GiB;

/// A draft and the slots that were chosen for it.
struct Candidate {
  std::unique_ptr<Plan> draft;  // the chooser refers to it
  std::unique_ptr<Chooser> chooser;
  Choice choice;
};

/// The drafts that fit, the one to prefer first. Throws when none does.
std::vector<std::unique_ptr<Plan>> drafts(const Setup& setup, const Limits& limits,
                                          std::int64_t evaluation_batches) {
  std::vector<std::unique_ptr<Plan>> fitting;
  std::unique_ptr<Plan> tight;
  for (const Setup& choice : chunk_choices(setup)) {
    auto draft = std::make_unique<Plan>(write_draft(choice, evaluation_batches));
    draft->limits = limits;
    if (missing(*draft, limits) > 0) {
      tight = std::move(draft);
    } else {
      fitting.push_back(std::move(draft));
    }
  }
  if (fitting.empty()) throw refusal(*tight, evaluation_batches).error;
  return fitting;
}

Candidate choose(std::vector<std::unique_ptr<Plan>> drafts, const Limits& limits,
                 const prefetch::CostModel& cost) {
  std::optional<Candidate> best;
  const std::uint64_t ops = kSimulatedOps / drafts.size();
  for (auto& draft : drafts) {
    Candidate next{std::move(draft), nullptr, {}};
    next.chooser = std::make_unique<Chooser>(*next.draft, cost, ops);
    next.choice = next.chooser->choose(limits);
    if (!best || next.choice.seconds < best->choice.seconds * kBetter) best = std::move(next);
  }
  return std::move(*best);
}

/// With the first choice of chunks that fits, or with the last.
Plan smallest_draft(const Setup& setup, const Limits& limits, std::int64_t evaluation_batches) {
  Plan draft;
  for (const Setup& choice : chunk_choices(setup)) {
    draft = write_draft(choice, evaluation_batches);
    draft.limits = limits;
    if (missing(draft, limits) == 0) break;
  }
  return draft;
}

/// The same plan with so many layers that keep their forward; null when it does not fit.
std::unique_ptr<Plan> keeping(const Plan& base, std::int64_t layers,
                              std::int64_t evaluation_batches) {
  Setup setup = base.setup;
  setup.kept_layers = layers;
  auto draft = std::make_unique<Plan>(write_draft(setup, evaluation_batches));
  draft->limits = base.limits;
  return missing(*draft, base.limits) > 0 ? nullptr : std::move(draft);
}

/// The most layers whose kept forwards fit.
std::int64_t most_kept(const Plan& base, std::int64_t evaluation_batches) {
  std::int64_t fits = 0;
  std::int64_t fails = base.setup.model.decoder.layers + 1;
  while (fails - fits > 1) {
    const std::int64_t middle = fits + (fails - fits) / 2;
    (keeping(base, middle, evaluation_batches) ? fits : fails) = middle;
  }
  return fits;
}

/// As many layers keep their forward as fit without a longer step: what they take is not there for
/// running ahead. What they take is no part of the serial minimum either.
Candidate with_kept_layers(Candidate base, const Limits& limits, std::int64_t evaluation_batches,
                           const prefetch::CostModel& cost) {
  if (!base.draft->setup.may_keep() || base.draft->setup.kept_layers > 0) return base;
  for (std::int64_t n = most_kept(*base.draft, evaluation_batches); n > 0; n = n * 3 / 4) {
    std::vector<std::unique_ptr<Plan>> one;
    one.push_back(keeping(*base.draft, n, evaluation_batches));
    Candidate next = choose(std::move(one), limits, cost);
    if (next.choice.seconds > base.choice.seconds * kAlike) continue;
    next.draft->minimum = base.draft->minimum;
    return next;
  }
  return base;
}

/// Everything that the setup leaves open, decided.
Candidate decide(const Setup& setup, const Limits& limits, std::int64_t evaluation_batches,
                 const prefetch::CostModel& cost) {
  return with_kept_layers(choose(drafts(setup, limits, evaluation_batches), limits, cost), limits,
                          evaluation_batches, cost);
}

/// Nothing is left that more memory could be used for.
bool has_all(Candidate& candidate) {
  const Setup& setup = candidate.draft->setup;
  if (setup.may_keep() && setup.kept_layers < setup.model.decoder.layers) return false;
  const Limits endless{{kEndless, kEndless, kEndless}, kEndless};
  return candidate.chooser->choose(endless).slots == candidate.choice.slots;
}

/// The plan that more memory would get. Slots that are there may also be left empty: more never
/// makes a plan slower.
Offer offer(const Setup& open, const Plan& now, double now_s, Tier tier,
            std::int64_t evaluation_batches, const prefetch::CostModel& cost) {
  Limits limits = now.limits;
  limits.tiers[index(tier)] += kOffer;
  const double then = decide(open, limits, evaluation_batches, cost).choice.seconds;
  if (then == std::numeric_limits<double>::infinity()) return {tier, kOffer, std::nullopt};
  return {tier, kOffer, std::min(now_s, then)};
}

Forecast forecast(Candidate& candidate, const Setup& open, std::int64_t evaluation_batches,
                  const prefetch::CostModel& cost) {
  Forecast forecast;
  const Plan& plan = *candidate.draft;
  if (plan.programs.step->ops().size() > kLongestSimulated) return forecast;
  const auto step = candidate.chooser->trials().look(candidate.choice.slots);
  forecast.step_s = step.seconds;
  const auto busiest = std::max_element(step.busy.begin(), step.busy.end());
  forecast.bound = plan.lanes[static_cast<std::size_t>(busiest - step.busy.begin())].name;
  forecast.bound_share = step.seconds > 0 ? std::min(1.0, *busiest / step.seconds) : 0;
  const bool all = has_all(candidate);
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    if (all) {
      forecast.offers.push_back({tier, kOffer, step.seconds});
    } else if (plan.minimum[index(tier)] > 0) {
      forecast.offers.push_back(offer(open, plan, step.seconds, tier, evaluation_batches, cost));
    }
  }
  return forecast;
}

}  // namespace

std::vector<std::shared_ptr<const prefetch::Program>> Programs::in_order() const {
  if (!evaluation) return {init, step, final};
  return {init, step, evaluation, final};
}

prefetch::BytesByTier require_minimum(const Setup& setup, const Limits& limits,
                                      std::int64_t evaluation_batches) {
  const Plan draft = smallest_draft(setup, limits, evaluation_batches);
  if (missing(draft, limits) == 0) return draft.minimum;
  throw refusal(draft, evaluation_batches).error;
}

void require_any_placement(const Setup& setup, const Limits& limits,
                           std::int64_t evaluation_batches) {
  const Plan draft = smallest_draft(setup, limits, evaluation_batches);
  if (missing(draft, limits) == 0) return;
  const Refusal refused = refusal(draft, evaluation_batches);
  if (!refused.another_fits) throw refused.error;
}

Plan make_plan(const Setup& setup, const Limits& limits, std::int64_t evaluation_batches,
               const prefetch::CostModel& cost) {
  Candidate chosen = decide(setup, limits, evaluation_batches, cost);
  Forecast expected = forecast(chosen, setup, evaluation_batches, cost);
  Plan plan = std::move(*chosen.draft);
  plan.forecast = std::move(expected);
  for (PoolId i = 0; i < plan.catalog.pools.size(); ++i) {
    plan.catalog.pools[i].slots = chosen.choice.slots[i];
  }
  plan.planned = bytes_by_tier(plan.catalog.pools, chosen.choice.slots);

  prefetch::Initialised initialised(*plan.catalog.residents);
  for (const auto& program : plan.programs.in_order()) {
    prefetch::check(*program, plan.catalog.pools, plan.lanes, initialised);
  }
  return plan;
}

}  // namespace sluice::plan
