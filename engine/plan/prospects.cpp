#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "engine/plan/choose.h"
#include "engine/plan/draft.h"
#include "engine/plan/plan.h"

namespace sluice::plan {
namespace {

using prefetch::Tier;
using schedule::Setup;
using schedule::Update;

constexpr Bytes kOffer = 1_GiB;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// The plan that more memory would get. Slots that are there may also be left empty: more never
/// makes a plan slower.
Offer offer(const Setup& asked, double now_s, Tier tier, const Terms& terms) {
  Limits limits = terms.limits;
  Bytes& limit = limits.tiers[index(tier)];
  limit += std::min(kOffer, kEndless - limit);
  const auto then = decide(asked, {limits, terms.evaluation_batches, terms.cost, terms.budget});
  if (!then || then->choice.seconds == kUnknown) return {tier, kOffer, std::nullopt};
  return {tier, kOffer, std::min(now_s, then->choice.seconds)};
}

Alternative alternative(const Setup& asked, Update update, const Terms& terms) {
  Alternative other{.update = update, .allowed = update != Update::kArriving || asked.may_arrive};
  const Setup setup = with_update(asked, update);
  auto smallest = smallest_draft(setup, terms.limits, terms.evaluation_batches, terms.budget);
  if (!smallest) return other;
  other.minimum = smallest->minimum;
  other.lacks = missing(*smallest, terms.limits);
  if (other.lacks > 0) return other;
  const Candidate then = decided(std::move(*smallest), setup, terms);
  if (then.choice.seconds < kUnknown) other.step_s = then.choice.seconds;
  return other;
}

}  // namespace

Prospects prospects(const Plan& plan, const Setup& asked, std::int64_t evaluation_batches,
                    const prefetch::CostModel& cost, std::uint64_t most_work) {
  Prospects all;
  const double now_s = plan.forecast.step_s;
  if (now_s <= 0) return all;
  const Update update = plan.setup.update;
  const Setup open = asked.picks_update ? with_update(asked, update) : asked;
  Budget budget(most_work - std::min(plan.work, most_work));
  const Terms terms{plan.limits, evaluation_batches, cost, budget};
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    if (plan.forecast.has_all) {
      all.offers.push_back({tier, kOffer, now_s});
    } else if (plan.minimum[index(tier)] > 0) {
      all.offers.push_back(offer(open, now_s, tier, terms));
    }
  }
  if (asked.begins_pending) return all;
  const auto own =
      smallest_draft(with_update(open, update), plan.limits, evaluation_batches, budget);
  all.minimum = own ? own->minimum : plan.minimum;
  for (const Update other : {Update::kEnd, Update::kArriving, Update::kDelayed}) {
    if (other != update) all.alternatives.push_back(alternative(open, other, terms));
  }
  return all;
}

}  // namespace sluice::plan
