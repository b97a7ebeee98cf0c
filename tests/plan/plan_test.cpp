#include "engine/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "engine/plan/rates.h"
#include "engine/shape/presets.h"
#include "prefetch/simulate.h"
#include "tests/plan/plans.h"

namespace sluice::testing {
namespace {

std::vector<std::uint32_t> slots_of(const Plan& p) {
  std::vector<std::uint32_t> slots;
  for (const auto& pool : p.catalog.pools) slots.push_back(pool.slots);
  return slots;
}

/// With every tier at its serial minimum.
Plan smallest_plan(const Setup& setup, std::int64_t evaluation_batches) {
  return make_plan(setup, just(require_minimum(setup, kPlenty, evaluation_batches)),
                   evaluation_batches);
}

/// A limit of the tiers says nothing of the memory that two of them may share, nor the other way
/// round.
static_assert(!std::is_default_constructible_v<Limits>);
static_assert(!std::is_constructible_v<Limits, BytesByTier>);
static_assert(!std::is_convertible_v<BytesByTier, Limits>);
static_assert(!std::is_convertible_v<Limits, BytesByTier>);

/// With these slots in its pools.
prefetch::Simulation machine_of(const Plan& p, const Slots& slots) {
  prefetch::Pools pools = p.catalog.pools;
  for (std::size_t i = 0; i < pools.size(); ++i) pools[i].slots = slots[i];
  return {p.catalog.residents, pools, p.lanes};
}

prefetch::SteadyStep steady_step(const Plan& p, const Slots& slots) {
  return prefetch::steady_step(machine_of(p, slots), p.programs.step, slow_machine());
}

double step_with(const Plan& p, const Slots& slots) {
  return steady_step(p, slots).seconds;
}

/// The most slots that were ever taken, by pool.
class Peaks : public prefetch::Observer {
 public:
  void begins(const prefetch::Scoreboard& board, prefetch::OpRef) override {
    slots.resize(board.pools().size(), 0);
    for (prefetch::PoolId i = 0; i < slots.size(); ++i) {
      slots[i] = std::max(slots[i], board.peak_slots(i));
    }
  }
  Slots slots;
};

/// What a long run takes where there is more than it can take.
Slots wanted_slots(const Plan& p) {
  Peaks peaks;
  const std::vector stream(6, p.programs.step);
  const Slots endless(p.catalog.pools.size(), 10'000);
  prefetch::simulate(machine_of(p, endless), stream, slow_machine(), &peaks);
  for (std::size_t i = 0; i < endless.size(); ++i) EXPECT_LT(peaks.slots[i], endless[i]);
  return peaks.slots;
}

/// So many bytes for each element of the model.
Bytes at_home(const schedule::Setup& setup, Bytes per_elem) {
  Bytes bytes = 0;
  for (const zero::Layout& layout : setup.layouts) bytes += layout.elems * per_elem;
  return bytes;
}

constexpr std::size_t kStride = 5;

/// Every fifth: all values of all axes, and most pairs of them.
std::vector<Placement> some_placements() {
  std::vector<Placement> some;
  const auto all = all_placements();
  const auto arriving = placements_by_segment(schedule::Update::kArriving);
  for (std::size_t i = 0; i < all.size(); i += kStride) some.push_back(all[i]);
  for (std::size_t i = 0; i < arriving.size(); i += 2 * kStride) some.push_back(arriving[i]);
  const auto delayed = delayed_placements();
  for (std::size_t i = 1; i < delayed.size(); i += 2 * kStride) some.push_back(delayed[i]);
  return some;
}

using EveryPlan = EveryPlacement;
INSTANTIATE_TEST_SUITE_P(Some, EveryPlan, ::testing::ValuesIn(some_placements()), placement_name);

TEST_P(EveryPlan, IsAcceptedAtExactlyItsMinimumAndRunsThere) {
  const schedule::Setup setup = setup_of(GetParam());
  const Plan p = smallest_plan(setup, 5);
  EXPECT_EQ(p.planned, p.minimum);
  prefetch::CostModel cost;
  cost.lanes.assign(p.lanes.size(), {0, 0, 1, {}});
  const std::vector stream{p.programs.init,       p.programs.step, p.programs.evaluation,
                           p.programs.checkpoint, p.programs.step, p.programs.final};
  EXPECT_GT(
      prefetch::simulate({p.catalog.residents, p.catalog.pools, p.lanes}, stream, cost).seconds, 0);
}

TEST_P(EveryPlan, WithMemoryToSpareIsAsFastAsMemoryWithoutEndAndTakesNoMoreThanItUses) {
  const Plan p = make_plan(setup_of(GetParam()), kPlenty);
  const Slots wanted = wanted_slots(p);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_GE(p.catalog.pools[i].slots, p.minimum_slots[i]) << p.catalog.pools[i].name;
    EXPECT_LE(p.catalog.pools[i].slots, std::max(wanted[i], p.minimum_slots[i]))
        << p.catalog.pools[i].name;
  }
  const double best = step_with(p, Slots(wanted.size(), 10'000));
  EXPECT_LE(p.forecast.step_s, best * 1.0101);
  const prefetch::SteadyStep step = steady_step(p, slots_of(p));
  EXPECT_DOUBLE_EQ(p.forecast.step_s, step.seconds);
  EXPECT_EQ(p.forecast.busy, step.busy);
  EXPECT_LE(p.forecast.step_s, step_with(p, p.minimum_slots));
}

/// Nothing passes through the nvme tier, so it has what lives there: 12 bytes of state per element,
/// 10 where bf16 weights in host memory have the masters' upper halves, and its weights in bf16.
TEST(Plan, HasOnDrivesExactlyWhatLivesThere) {
  const auto drives = [](ParamHome param, OptimizerHome state) {
    const auto setup = setup_of({.param = param, .state = state});
    const Plan p = make_plan(setup, kPlenty);
    EXPECT_EQ(p.planned[index(Tier::kNvme)], p.minimum[index(Tier::kNvme)]);
    return p.planned[index(Tier::kNvme)];
  };
  const auto setup = setup_of({});
  EXPECT_EQ(drives(ParamHome::kCpu, OptimizerHome::kNvme), at_home(setup, 10));
  EXPECT_EQ(drives(ParamHome::kNvme, OptimizerHome::kNvme), at_home(setup, 12 + 2));
  EXPECT_EQ(drives(ParamHome::kNvme, OptimizerHome::kCpu), at_home(setup, 2));
  EXPECT_EQ(drives(ParamHome::kCpu, OptimizerHome::kCpu), 0U);
  const BytesByTier resident = require_minimum(
      setup_of({.param = ParamHome::kNone, .state = OptimizerHome::kCpu}), kPlenty, 0);
  EXPECT_GT(resident[index(Tier::kGpu)], at_home(setup, 2));
  EXPECT_GT(resident[index(Tier::kCpu)], at_home(setup, 12));
  EXPECT_LT(resident[index(Tier::kCpu)], at_home(setup, 12 + 2 + 4 + 4));
}

TEST(Plan, NeverExceedsALimitNorFallsBelowItsMinimumNorIsSlowerThanThere) {
  EXPECT_TRUE(rc::check([] {
    const auto setup = setup_of(*rc::gen::elementOf(all_placements()));
    Limits limits = just(require_minimum(setup, kPlenty, 0));
    const Plan most = make_plan(setup, kPlenty);
    for (const Tier tier : kTiers) {
      Bytes& limit = limits.tiers[index(tier)];
      const Bytes up_to = most.planned[index(tier)] + 64_KiB;
      if (limit < up_to) limit = *rc::gen::inRange<Bytes>(limit, up_to + 1);
    }
    if (*rc::gen::element(false, true)) {
      const auto both = [](const BytesByTier& bytes) {
        return bytes[index(Tier::kGpu)] + bytes[index(Tier::kCpu)];
      };
      const Bytes low = both(require_minimum(setup, kPlenty, 0));
      limits.host = *rc::gen::inRange<Bytes>(low, std::max(low, both(most.planned)) + 1);
    }
    const Plan p = make_plan(setup, limits);
    for (const Tier tier : kTiers) {
      Bytes taken = 0;
      for (const auto& pool : p.catalog.pools) {
        if (pool.tier == tier) taken += pool.slot * pool.slots;
      }
      RC_ASSERT(p.planned[index(tier)] == taken);
      RC_ASSERT(taken <= limits.tiers[index(tier)]);
    }
    RC_ASSERT(p.planned[index(Tier::kGpu)] + p.planned[index(Tier::kCpu)] <= limits.host);
    for (std::size_t i = 0; i < p.catalog.pools.size(); ++i) {
      RC_ASSERT(p.catalog.pools[i].slots >= p.minimum_slots[i]);
    }
    RC_ASSERT(p.forecast.step_s <= step_with(p, p.minimum_slots));
  }));
}

/// The search is greedy, so this is no theorem: it is what it must reach on these plans. (What may
/// keep its forward may take 2% for it; and with more memory more requests are at a drive, where a
/// short one may overtake the one that is waited for.)
TEST_P(EveryPlan, IsHardlySlowerWithMoreMemory) {
  const auto setup = setup_of(GetParam());
  const Plan most = make_plan(setup, kPlenty);
  const BytesByTier minimum = require_minimum(setup, kPlenty, 0);
  double fastest = std::numeric_limits<double>::infinity();
  for (const Bytes eighths : {0_B, 1_B, 2_B, 4_B, 8_B}) {
    Limits limits = just(minimum);
    for (const Tier tier : kTiers) {
      const std::size_t i = index(tier);
      limits.tiers[i] += (std::max(most.planned[i], minimum[i]) - minimum[i]) * eighths / 8;
    }
    const double step_s = make_plan(setup, limits).forecast.step_s;
    EXPECT_LE(step_s, fastest * 1.02) << eighths << " eighths of what it wants";
    fastest = std::min(fastest, step_s);
  }
}

/// A step names one batch, whose slot it uses to its end; two steps are in flight.
TEST(Plan, WithMemoryToSpareLoadsTheNextBatchDuringTheStep) {
  const auto setup = setup_of({.sharing = Sharing::kUnified, .micro_batches = 1});
  plan::Rates rates;
  rates.op_s = 1e-6;
  rates.compute[schedule::OpId::kLoadBatch] = {0, 0, 1};
  rates.compute[schedule::OpId::kHeadTrain] = {0, 0, 1};
  const auto cost = plan::cost_model(rates, schedule::make_lanes());
  EXPECT_LT(plan::make_plan(setup, kPlenty, 0, cost).forecast.step_s, 1.1);
}

/// Where one lane does the work, a batch that is loaded ahead is a thousandth of the step, and of
/// other slots to run ahead with only the rounding of seconds is seen.
TEST(Plan, TakesNoMemoryForWhatNextToNothingIsGained) {
  const auto setup = setup_of({.param = ParamHome::kNone,
                               .gradient = GradientHome::kNone,
                               .state = OptimizerHome::kNone,
                               .sharing = Sharing::kUnified,
                               .micro_batches = 1});
  plan::Rates rates;
  rates.updates = schedule::LaneKind::kCompute;
  rates.op_s = 1e-6;
  rates.compute[schedule::OpId::kHeadTrain] = {0, 0, 1};
  for (const double load_s : {1e-3, 1e-7}) {
    rates.compute[schedule::OpId::kLoadBatch] = {0, 0, load_s};
    const auto cost = plan::cost_model(rates, schedule::make_lanes());
    const Plan p = plan::make_plan(setup, kPlenty, 0, cost);
    EXPECT_EQ(slots_of(p), p.minimum_slots) << load_s;
  }
}

TEST(Plan, BelowWhatItWantsGivesSlotsWhereTheyShortenTheStep) {
  const auto setup = setup_of({});
  const Plan most = make_plan(setup, kPlenty);
  Limits limits = just(most.minimum);
  for (const Tier tier : kTiers) {
    limits.tiers[index(tier)] += (most.planned[index(tier)] - most.minimum[index(tier)]) / 2;
  }
  const Plan half = make_plan(setup, limits);
  const double slowest = step_with(half, half.minimum_slots);
  EXPECT_LT(half.forecast.step_s, slowest - (slowest - most.forecast.step_s) / 4);
}

/// The shortest step of all slot counts of one tier's pools that fit `limit`; the others stay as
/// they are in `most`.
double best_step(const Plan& most, Tier tier, Bytes limit, Slots slots, std::size_t pool = 0) {
  while (pool < slots.size() && (most.catalog.pools[pool].tier != tier ||
                                 most.catalog.pools[pool].slots == most.minimum_slots[pool])) {
    ++pool;
  }
  if (pool == slots.size()) {
    Bytes bytes = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (most.catalog.pools[i].tier == tier) bytes += most.catalog.pools[i].slot * slots[i];
    }
    return bytes <= limit ? step_with(most, slots) : std::numeric_limits<double>::infinity();
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::uint32_t n = most.minimum_slots[pool]; n <= most.catalog.pools[pool].slots; ++n) {
    slots[pool] = n;
    best = std::min(best, best_step(most, tier, limit, slots, pool + 1));
  }
  return best;
}

TEST(Plan, BelowWhatItWantsIsNearTheBestOfAllThatFit) {
  const auto setup = setup_of({.micro_batches = 1, .model = TinyModel::kLlama});
  const Plan most = make_plan(setup, kPlenty);
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    for (const Bytes quarters : {1_B, 2_B, 3_B}) {
      Limits limits = kPlenty;
      Bytes& limit = limits.tiers[index(tier)];
      const Bytes low = most.minimum[index(tier)];
      limit = low + (most.planned[index(tier)] - low) * quarters / 4;
      const double best = best_step(most, tier, limit, slots_of(most));
      EXPECT_LE(make_plan(setup, limits).forecast.step_s, best * 1.02)
          << name_of(tier) << " tier, " << quarters << " quarters of what it wants";
    }
  }
}

TEST(Plan, BelowWhatItWantsTakesSlotsWhereTheyAreMissedLeast) {
  shape::Decoder d = shape::find_preset("gpt2-124m");
  d.layers = 4;
  schedule::Options homes{.offload_param = ParamHome::kNvme,
                          .offload_optimizer = OptimizerHome::kNvme,
                          .sub_group_size = 32_MiB};
  auto setup = schedule::make_setup(shape::make_model(d), homes);
  setup.seq_len = 1024;
  setup.micro_batches = 3;
  plan::Rates rates;
  rates.op_s = 1;  // every op takes as long: all lanes have work
  const auto cost = plan::cost_model(rates, schedule::make_lanes());
  const Plan most = plan::make_plan(setup, kPlenty, 0, cost);
  Limits limits = kPlenty;
  for (const Tier tier : kTiers) {
    limits.tiers[index(tier)] = (most.minimum[index(tier)] + most.planned[index(tier)]) / 2;
  }
  const Plan half = plan::make_plan(setup, limits, 0, cost);
  EXPECT_LE(half.forecast.step_s, most.forecast.step_s * 1.02);
}

TEST(Plan, SaysWhatOneMoreGibibyteWouldBuy) {
  const auto setup = setup_of({});
  const Plan tight = smallest_plan(setup, 0);
  const auto offers = prospects(tight, setup).offers;
  ASSERT_EQ(offers.size(), 2U);
  const Plan most = make_plan(setup, kPlenty);
  bool any = false;
  for (const plan::Offer& offer : offers) {
    EXPECT_EQ(offer.more, 1_GiB);
    EXPECT_LE(offer.step_s, tight.forecast.step_s);
    EXPECT_GE(offer.step_s, most.forecast.step_s * 0.99);
    any = any || offer.step_s < tight.forecast.step_s * 0.99;
  }
  EXPECT_TRUE(any) << "two tiers at their minimum, and more of either buys nothing";
  const auto of_most = prospects(most, setup).offers;
  EXPECT_EQ(of_most.size(), 2U);
  for (const plan::Offer& offer : of_most) EXPECT_EQ(offer.step_s, most.forecast.step_s);
}

TEST(Plan, OffersMoreOfAMemoryWithoutALimitToo) {
  const auto setup = setup_of({});
  Limits limits = smallest_plan(setup, 0).limits;
  limits.tiers[index(Tier::kCpu)] = plan::kEndless - 1;
  const Plan plan = make_plan(setup, limits);
  const auto offers = prospects(plan, setup).offers;
  ASSERT_EQ(offers.size(), 2U);
  ASSERT_EQ(offers.back().tier, Tier::kCpu);
  EXPECT_EQ(offers.back().step_s, plan.forecast.step_s);
}

TEST(Plan, OfARunOpByOpForecastsAllItsOpsInARow) {
  const Plan plan = make_plan(setup_of({}), kPlenty);
  const auto cost = slow_machine();
  double seconds = 0, of_compute = 0, of_drives = 0;
  for (const prefetch::Op& op : plan.programs.step->ops()) {
    using enum schedule::LaneKind;
    seconds += cost.seconds(op);
    if (op.lane == schedule::lane_of(kCompute)) of_compute += cost.seconds(op);
    const bool moves =
        op.lane == schedule::lane_of(kNvmeRead) || op.lane == schedule::lane_of(kNvmeWrite);
    if (moves) of_drives += cost.seconds(op);
  }
  EXPECT_GT(of_drives, 0);
  const plan::Forecast serial = plan::serial_forecast(plan, cost);
  EXPECT_DOUBLE_EQ(serial.seconds(), seconds);
  EXPECT_GT(seconds, plan.forecast.step_s);
  EXPECT_GE(serial.bound_share, of_compute / seconds);
  EXPECT_LT(serial.bound_share, 1);
  EXPECT_TRUE(serial.has_all);
  EXPECT_DOUBLE_EQ(serial.hiding.drives_s, of_drives);
  EXPECT_TRUE(serial.hiding.op_by_op);
}

TEST(Plan, IsTheSameEveryTime) {
  const schedule::Setup setup = setup_of({});
  EXPECT_EQ(slots_of(make_plan(setup, kPlenty, 3)), slots_of(make_plan(setup, kPlenty, 3)));
}

TEST(Plan, HasAnEvaluationOnlyWhenAskedAndKeepsASlotForEachOfItsLosses) {
  const schedule::Setup setup = setup_of({});
  const Plan without = smallest_plan(setup, 0);
  const Plan with = smallest_plan(setup, 50);
  EXPECT_EQ(without.programs.evaluation, nullptr);
  ASSERT_NE(with.programs.evaluation, nullptr);
  const auto records = with.catalog.records;
  EXPECT_EQ(with.catalog.pools[records].slots, 51U);  // and the run's counters
  EXPECT_LT(without.catalog.pools[records].slots, 51U);
}

}  // namespace
}  // namespace sluice::testing
