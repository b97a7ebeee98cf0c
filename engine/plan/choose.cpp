#include "engine/plan/choose.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "engine/plan/draft.h"
#include "engine/plan/placements.h"
#include "engine/plan/refusal.h"

namespace sluice::plan {
namespace {

using prefetch::Tier;
using schedule::Setup;

/// Another sweep, or another size of chunks, must win by this much.
constexpr double kBetter = 0.99;
/// Each plan is trimmed to within 1% of its best: less than this says nothing of two of them.
constexpr double kAlike = 1.02;
/// Each candidate may use so little of what is left that those behind it have enough.
constexpr std::uint64_t kShares = 8;

Candidate with_slots(Plan draft, const Terms& terms) {
  Candidate candidate;
  candidate.draft = std::make_unique<Plan>(std::move(draft));
  candidate.chooser = std::make_unique<Chooser>(*candidate.draft, terms.cost, terms.budget,
                                                terms.budget.left() / kShares);
  candidate.choice = candidate.chooser->choose(terms.limits);
  return candidate;
}

/// nullopt: it does not fit, or the budget does not afford to look.
std::optional<Candidate> candidate(const Setup& setup, const Terms& terms) {
  auto draft = write_draft(setup, terms.evaluation_batches, terms.budget);
  if (!draft || missing(*draft, terms.limits) > 0) return std::nullopt;
  draft->limits = terms.limits;
  return with_slots(std::move(*draft), terms);
}

bool better(const Candidate& a, const Candidate& b) {
  return a.choice.seconds < b.choice.seconds * kBetter;
}

/// Of the device and the host.
Bytes memory(const Candidate& c) {
  const prefetch::BytesByTier bytes = bytes_by_tier(c.draft->catalog.pools, c.choice.slots);
  return bytes[index(Tier::kGpu)] + bytes[index(Tier::kCpu)];
}

/// From the most micro-batches together that fit, downwards for as long as that shortens the step.
Candidate with_best_sweep(Plan smallest, std::int64_t most, const Terms& terms) {
  Setup open = smallest.setup;
  open.sweep = most;
  auto choices = sweep_choices(open, terms.evaluation_batches);
  std::erase_if(choices, [&](const Setup& choice) {
    return choice.sweep == smallest.setup.sweep;  // which is written
  });
  std::optional<Candidate> best;
  for (const Setup& choice : choices) {
    auto next = candidate(choice, terms);
    if (!next) continue;
    if (best && !better(*next, *best)) return std::move(*best);
    best = std::move(next);
  }
  Candidate last = with_slots(std::move(smallest), terms);
  return !best || better(last, *best) ? std::move(last) : std::move(*best);
}

/// The preferred chunks that fit are there already; those behind them may be better.
Candidate with_best_chunks(Candidate best, Setup open, const Terms& terms) {
  open.sweep = best.draft->setup.sweep;
  const auto choices = chunk_choices(open, terms.evaluation_batches);
  const auto preferred = std::ranges::find(choices, best.draft->setup.chunks, &Setup::chunks);
  if (preferred == choices.end()) return best;
  for (auto choice = preferred + 1; choice != choices.end(); ++choice) {
    auto next = candidate(*choice, terms);
    if (next && better(*next, best)) best = std::move(*next);
  }
  return best;
}

/// The plan of a setup that keeps more of a forward than `base` does, if it fits and its step is no
/// longer: what is kept takes memory that is not there for running ahead. It is no part of the
/// serial minimum either.
std::optional<Candidate> as_short(const Setup& setup, const Candidate& base, const Terms& terms) {
  auto next = candidate(setup, terms);
  // Where nothing was simulated, nothing speaks for keeping it.
  const bool known = next && next->choice.seconds < std::numeric_limits<double>::infinity();
  const bool asked = next && setup.homes.recompute == schedule::Recompute::kNone;
  const bool longer = known && next->choice.seconds > base.choice.seconds * kAlike;
  if (!asked && (!known || longer)) return std::nullopt;
  next->draft->minimum = base.draft->minimum;
  return next;
}

/// A head that keeps its logits saves a product.
Candidate with_kept_logits(Candidate base, const Terms& terms) {
  Setup setup = base.draft->setup;
  if (!setup.may_keep_logits() || setup.keeps_logits) return base;
  setup.keeps_logits = true;
  auto next = as_short(setup, base, terms);
  return next ? std::move(*next) : std::move(base);
}

/// So many layers' kept forwards have room beside the serial minimum, in all micro-batches that go
/// together.
std::int64_t most_kept(const Plan& base) {
  const auto left = [](Bytes limit, Bytes need) { return limit - std::min(limit, need); };
  const Bytes logits = base.setup.keeps_logits ? round_up(base.setup.logits, kAlignment) : 0;
  const Bytes gpu = base.minimum[index(Tier::kGpu)] + logits;
  const Bytes room = std::min(left(base.limits.tiers[index(Tier::kGpu)], gpu),
                              left(base.limits.host, gpu + base.minimum[index(Tier::kCpu)]));
  const Bytes layer = round_up(schedule::sizes_of(base.setup).kept, kAlignment) *
                      static_cast<Bytes>(base.setup.sweep);
  return std::min(base.setup.model->decoder.layers, static_cast<std::int64_t>(room / layer));
}

/// As many layers keep their forward as fit without a longer step.
Candidate with_kept_layers(Candidate base, const Terms& terms) {
  Setup setup = base.draft->setup;
  if (!setup.may_keep() || setup.kept_layers > 0) return base;
  for (std::int64_t n = most_kept(*base.draft); n > 0; n = n * 3 / 4) {
    setup.kept_layers = n;
    if (auto next = as_short(setup, base, terms)) return std::move(*next);
  }
  return base;
}

}  // namespace

Candidate decided(Plan smallest, const Setup& open, const Terms& terms) {
  Candidate best = with_best_sweep(std::move(smallest), open.sweep, terms);
  best = with_kept_logits(with_best_chunks(std::move(best), open, terms), terms);
  return with_kept_layers(std::move(best), terms);
}

std::optional<Candidate> decide(const Setup& open, const Terms& terms) {
  std::optional<Candidate> best;
  std::optional<Plan> nearest;
  for (const Setup& choice : update_choices(open)) {
    auto smallest = smallest_draft(choice, terms.limits, terms.evaluation_batches, terms.budget);
    if (!smallest) continue;
    const Bytes lacking = missing(*smallest, terms.limits);
    if (lacking > 0) {
      if (!nearest || lacking < missing(*nearest, terms.limits)) nearest = std::move(smallest);
      continue;
    }
    Candidate next = decided(std::move(*smallest), choice, terms);
    if (!best || better(next, *best) || (!better(*best, next) && memory(next) < memory(*best))) {
      best = std::move(next);
    }
  }
  if (!best && nearest) {
    throw refusal(*nearest,
                  search(*nearest, terms.evaluation_batches, Wanted::kLeastTraffic, terms.budget));
  }
  return best;
}

}  // namespace sluice::plan
