#include "engine/plan/slots.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/base/error.h"

namespace sluice::plan {
namespace {

using prefetch::BytesByTier;
using prefetch::PoolId;
using prefetch::Tier;

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A step this much longer is as good.
constexpr double kSlack = 0.01;
/// With fewer trials than this, what is found is no better than the share of each pool.
constexpr std::uint64_t kFewestTrials = 24;

/// More slots for a shorter step.
bool is_worth_it(const Choice& more, const Choice& few) {
  return more.seconds * (1 + kSlack) < few.seconds;
}

/// Tiers that are counted together against one limit.
struct Memory {
  std::vector<Tier> tiers;
  Bytes limit;

  bool holds(Tier tier) const { return std::ranges::count(tiers, tier) > 0; }
  Bytes in_use(const BytesByTier& bytes) const {
    Bytes sum = 0;
    for (const Tier tier : tiers) sum += bytes[index(tier)];
    return sum;
  }
};

std::vector<Memory> memories(const Limits& limits) {
  std::vector<Memory> all;
  for (const Tier tier : prefetch::kTiers) all.push_back({{tier}, limits.tiers[index(tier)]});
  all.push_back({{Tier::kGpu, Tier::kCpu}, limits.host});
  return all;
}

/// Beyond this many slots a pool has nothing left to run ahead with: all that one step defines in
/// it, twice (two steps are in flight), and its persistents.
Slots ample_slots(const Plan& draft) {
  Slots slots(draft.catalog.pools.size(), 0);
  const auto count = [&](const prefetch::BufferTable& table, std::uint32_t times) {
    for (const auto id : table.roots()) {
      const PoolId pool = table.info(id).pool;
      if (pool != prefetch::kNoPool) slots[pool] += times;
    }
  };
  count(*draft.catalog.residents, 1);
  count(draft.programs.step->transients(), 2);
  for (PoolId i = 0; i < slots.size(); ++i) slots[i] = std::max(slots[i], draft.minimum_slots[i]);
  return slots;
}

}  // namespace

BytesByTier bytes_by_tier(const prefetch::Pools& pools, const Slots& slots) {
  BytesByTier bytes{};
  for (PoolId i = 0; i < pools.size(); ++i) bytes[index(pools[i].tier)] += pools[i].slot * slots[i];
  return bytes;
}

Trials::Trials(const Plan& plan, const prefetch::CostModel& cost, Budget& budget,
               std::uint64_t share)
    : plan_(plan), cost_(cost), budget_(budget), each_(work_of_trial(plan)), share_(share) {}

std::uint64_t Trials::left() const {
  return std::min(share_, budget_.left()) / std::max<std::uint64_t>(each_, 1);
}

std::optional<prefetch::SteadyStep> Trials::look(const Slots& slots) {
  if (!budget_.affords(each_)) return std::nullopt;
  budget_.spend(each_);
  share_ -= std::min(share_, each_);
  prefetch::Pools pools = plan_.catalog.pools;
  for (PoolId i = 0; i < pools.size(); ++i) pools[i].slots = slots[i];
  return prefetch::steady_step({plan_.catalog.residents, std::move(pools), plan_.lanes},
                               plan_.programs.step, cost_);
}

double Trials::seconds(const Slots& slots) {
  if (const auto known = seen_.find(slots); known != seen_.end()) return known->second;
  if (left() == 0) return kNever;
  return seen_[slots] = look(slots)->seconds;
}

Chooser::Chooser(const Plan& draft, const prefetch::CostModel& cost, Budget& budget,
                 std::uint64_t share)
    : draft_(draft), ample_(ample_slots(draft)), trials_(draft, cost, budget, share) {}

Choice Chooser::choose(const Limits& limits) {
  const Choice shared = tried(by_share(limits)), least = tried(draft_.minimum_slots);
  Choice guess = shared.seconds == kNever || is_worth_it(shared, least) ? shared : least;
  if (!trimmed_ && trials_.left() < kFewestTrials) return guess;
  Choice best = squeezed(trimmed(), limits);
  if (best.seconds == kNever) return guess;  // the trials ran out
  if (least.seconds <= best.seconds) best = least;
  return is_worth_it(shared, best) ? shared : best;
}

Choice Chooser::tried(Slots slots) {
  const double seconds = trials_.seconds(slots);
  return {std::move(slots), seconds};
}

Choice Chooser::trimmed() {
  if (!trimmed_) {
    Slots slots = ample_;
    trim(slots);
    trimmed_ = tried(std::move(slots));
  }
  return *trimmed_;
}

/// Pool by pool, the one with most to save first, to the fewest slots that cost no time.
void Chooser::trim(Slots& slots) {
  const double best = trials_.seconds(slots);
  const auto saving = [&](PoolId i) {
    return draft_.catalog.pools[i].slot * (ample_[i] - draft_.minimum_slots[i]);
  };
  std::vector<PoolId> order(slots.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](PoolId a, PoolId b) { return saving(a) > saving(b); });
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (saving(order[i]) == 0) return;
    // Each pool may spend its part of the slack, and what those before it left.
    const double part = static_cast<double>(i + 1) / static_cast<double>(order.size());
    slots[order[i]] = fewest(slots, order[i], best * (1 + kSlack * part));
  }
}

/// Up from the minimum in growing strides, then between the last two: few slots are the rule.
std::uint32_t Chooser::fewest(Slots slots, PoolId pool, double bound) {
  const std::uint32_t most = slots[pool];
  std::uint32_t few = draft_.minimum_slots[pool];
  const auto enough = [&](std::uint32_t n) {
    slots[pool] = n;
    return trials_.seconds(slots) <= bound;
  };
  if (few == most || enough(few)) return few;
  std::uint32_t stride = 1;
  while (few + stride < most && !enough(few + stride)) {
    few += stride;
    stride *= 2;
  }
  std::uint32_t many = std::min(few + stride, most);
  while (many - few > 1) {
    const std::uint32_t middle = few + (many - few) / 2;
    (enough(middle) ? many : few) = middle;
  }
  return many;
}

/// While a memory is too small: a few slots of the pool there that loses least time per byte.
Choice Chooser::squeezed(Choice from, const Limits& limits) {
  for (const Memory& memory : memories(limits)) {
    while (true) {
      const Bytes bytes = memory.in_use(bytes_by_tier(draft_.catalog.pools, from.slots));
      if (bytes <= memory.limit) break;
      from = without_a_few(from, memory.tiers, bytes - memory.limit);
    }
  }
  return from;
}

/// `excess`: bytes that are too many in these tiers together.
Choice Chooser::without_a_few(const Choice& from, const std::vector<Tier>& tiers, Bytes excess) {
  const auto& pools = draft_.catalog.pools;
  std::optional<Choice> best;
  double least = kNever;
  for (PoolId i = 0; i < pools.size(); ++i) {
    const std::uint32_t spare = from.slots[i] - draft_.minimum_slots[i];
    if (std::ranges::count(tiers, pools[i].tier) == 0 || spare == 0) continue;
    const auto most =
        static_cast<std::uint32_t>(std::min<Bytes>(div_ceil(excess, pools[i].slot), spare));
    const std::uint32_t take = std::clamp(spare / 4, 1U, most);
    Choice without = from;
    without.slots[i] -= take;
    without.seconds = trials_.seconds(without.slots);
    const double lost = std::max(0.0, without.seconds - from.seconds) /
                        (static_cast<double>(take) * static_cast<double>(pools[i].slot));
    if (best && !(lost < least)) continue;
    least = lost;
    best = std::move(without);
  }
  SLUICE_CHECK(best, kLogic, "slots were asked of a memory whose pools are at their minimum");
  return *best;
}

/// One slot at a time to the pool that is furthest below half more than its minimum; ties in order
/// of declaration.
Slots Chooser::by_share(const Limits& limits) {
  const auto& pools = draft_.catalog.pools;
  const Slots& minimum = draft_.minimum_slots;
  Slots slots = minimum;
  const std::vector<Memory> all = memories(limits);
  BytesByTier bytes = bytes_by_tier(pools, slots);
  while (true) {
    PoolId best = prefetch::kNoPool;
    double lowest = 1.0;
    for (PoolId i = 0; i < pools.size(); ++i) {
      const auto half = static_cast<std::uint32_t>(div_ceil(minimum[i], 2));
      const std::uint32_t target = std::min(ample_[i], minimum[i] + std::max(2U, half));
      if (minimum[i] == 0 || slots[i] >= target) continue;
      const bool full = std::ranges::any_of(all, [&](const Memory& m) {
        return m.holds(pools[i].tier) && m.in_use(bytes) + pools[i].slot > m.limit;
      });
      if (full) continue;
      const double share = static_cast<double>(slots[i]) / target;
      if (share >= lowest) continue;
      lowest = share;
      best = i;
    }
    if (best == prefetch::kNoPool) return slots;
    ++slots[best];
    bytes[index(pools[best].tier)] += pools[best].slot;
  }
}

}  // namespace sluice::plan
