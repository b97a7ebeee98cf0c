#include "engine/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "prefetch/simulate.h"
#include "tests/schedule/placements.h"

namespace sluice::testing {
namespace {

using plan::Limits;
using plan::make_plan;
using plan::Plan;
using prefetch::MemoryTag;
using prefetch::Tier;
using schedule::GradientHome;
using schedule::OptimizerHome;
using schedule::ParamHome;
using schedule::Setup;
using schedule::Sharing;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Limits kPlenty = {1ULL << 40, 1ULL << 40, 1ULL << 40};
constexpr std::array kTiers = {Tier::kGpu, Tier::kCpu, Tier::kNvme};

std::size_t index(Tier tier) {
  return static_cast<std::size_t>(tier);
}

std::string refusal(const Setup& setup, const Limits& limits) {
  try {
    make_plan(setup, limits, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::kBudget);
    return error.what();
  }
  ADD_FAILURE() << "it was accepted";
  return {};
}

/// What make_plan says of a tier that is one byte too small.
std::string refusal_one_byte_below(const Setup& setup, Tier tier) {
  Limits limits = kPlenty;
  limits[index(tier)] = make_plan(setup, kPlenty, 0).minimum[index(tier)] - 1;
  return refusal(setup, limits);
}

Limits bytes_of_pools(const Plan& p) {
  Limits bytes{};
  for (const auto& pool : p.catalog.pools) bytes[index(pool.tier)] += pool.slot * pool.slots;
  return bytes;
}

std::vector<std::uint32_t> slots_of(const Plan& p) {
  std::vector<std::uint32_t> slots;
  for (const auto& pool : p.catalog.pools) slots.push_back(pool.slots);
  return slots;
}

/// With every tier at its serial minimum.
Plan smallest_plan(const Setup& setup, std::int64_t evaluation_batches) {
  return make_plan(setup, make_plan(setup, kPlenty, evaluation_batches).minimum,
                   evaluation_batches);
}

using EveryPlan = EveryPlacement;
INSTANTIATE_TEST_SUITE_P(All, EveryPlan, ::testing::ValuesIn(all_placements()), placement_name);

TEST_P(EveryPlan, IsAcceptedAtExactlyItsMinimumAndRunsThere) {
  const schedule::Setup setup = setup_of(GetParam());
  const Plan p = smallest_plan(setup, 5);
  EXPECT_EQ(p.planned, p.minimum);
  EXPECT_EQ(p.planned, bytes_of_pools(p));
  prefetch::CostModel cost;
  cost.lanes.assign(p.lanes.size(), {0, 0, 1, {}});
  const std::vector stream{p.programs.init, p.programs.step, p.programs.evaluation, p.programs.step,
                           p.programs.final};
  EXPECT_GT(
      prefetch::simulate({p.catalog.residents, p.catalog.pools, p.lanes}, stream, cost).seconds, 0);
}

TEST_P(EveryPlan, IsRefusedWhenAnyTierIsOneByteSmaller) {
  const schedule::Setup setup = setup_of(GetParam());
  const Limits minimum = make_plan(setup, kPlenty, 0).minimum;
  for (const Tier tier : kTiers) {
    if (minimum[index(tier)] == 0) continue;
    Limits limits = minimum;
    --limits[index(tier)];
    EXPECT_THAT(refusal(setup, limits),
                AllOf(HasSubstr("the " + std::string(name_of(tier)) + " tier is too small"),
                      HasSubstr("(1 B) short"),
                      HasSubstr("tiers." + std::string(name_of(tier)) + ".limit")));
  }
}

TEST_P(EveryPlan, WithMemoryToSpareTakesNoMoreThanCanRunAhead) {
  const schedule::Setup setup = setup_of(GetParam());
  const Plan least = smallest_plan(setup, 0);
  const Plan most = make_plan(setup, kPlenty, 0);
  std::vector<std::uint32_t> useful(most.catalog.pools.size(), 0);
  std::vector<std::uint32_t> persistent(useful);
  for (const auto id : most.catalog.residents->roots()) {
    ++persistent[most.catalog.residents->info(id).pool];
  }
  const auto& transients = most.programs.step->transients();
  for (const auto id : transients.roots()) useful[transients.info(id).pool] += 2;
  bool wider = false;
  for (std::size_t i = 0; i < useful.size(); ++i) {
    const auto& pool = most.catalog.pools[i];
    const std::uint32_t minimum = least.catalog.pools[i].slots;
    EXPECT_GE(pool.slots, minimum) << pool.name;
    EXPECT_LE(pool.slots, std::max(minimum, persistent[i] + useful[i])) << pool.name;
    EXPECT_LE(pool.slots, minimum + std::max(2U, (minimum + 1) / 2)) << pool.name;
    if (useful[i] == 0) {
      EXPECT_EQ(pool.slots, persistent[i]) << pool.name << " holds what never moves";
    }
    wider = wider || pool.slots > minimum;
  }
  EXPECT_TRUE(wider);
}

TEST(Plan, NeverExceedsALimitAndUsesNoLessMemoryWhenThereIsMore) {
  EXPECT_TRUE(rc::check([] {
    const Placement placement = *rc::gen::elementOf(all_placements());
    const schedule::Setup setup = setup_of(placement);
    const Plan most = make_plan(setup, kPlenty, 0);
    Limits small{}, large{};
    for (const Tier tier : kTiers) {
      const Bytes low = most.minimum[index(tier)];
      const auto some = [low](Bytes up_to) {
        return up_to <= low ? low : *rc::gen::inRange<Bytes>(low, up_to + 1);
      };
      large[index(tier)] = some(most.planned[index(tier)] + 64_KiB);
      small[index(tier)] = some(large[index(tier)]);
    }
    const Plan least = make_plan(setup, most.minimum, 0);
    const Plan a = make_plan(setup, small, 0);
    const Plan b = make_plan(setup, large, 0);
    RC_ASSERT(a.planned == bytes_of_pools(a));
    for (const Tier tier : kTiers) {
      RC_ASSERT(a.planned[index(tier)] <= small[index(tier)]);
      RC_ASSERT(a.planned[index(tier)] <= b.planned[index(tier)]);
    }
    for (std::size_t i = 0; i < a.catalog.pools.size(); ++i) {
      RC_ASSERT(a.catalog.pools[i].slots >= least.catalog.pools[i].slots);
      RC_ASSERT(a.catalog.pools[i].slots <= most.catalog.pools[i].slots);
    }
  }));
}

TEST(Plan, LeavesNoRoomForASlotThatItCouldUse) {
  const schedule::Setup setup = setup_of({});
  const Plan most = make_plan(setup, kPlenty, 0);
  Limits limits = most.minimum;
  for (const Tier tier : kTiers) {
    limits[index(tier)] += (most.planned[index(tier)] - most.minimum[index(tier)]) / 2;
  }
  const Plan half = make_plan(setup, limits, 0);
  for (std::size_t i = 0; i < half.catalog.pools.size(); ++i) {
    const auto& pool = half.catalog.pools[i];
    if (pool.slots == most.catalog.pools[i].slots) continue;
    EXPECT_GT(half.planned[index(pool.tier)] + pool.slot, limits[index(pool.tier)]) << pool.name;
  }
}

TEST(Plan, OfOneTierDoesNotDependOnTheOthersLimits) {
  const schedule::Setup setup = setup_of({});
  const Plan most = make_plan(setup, kPlenty, 0);
  Limits limits = kPlenty;
  limits[index(Tier::kGpu)] = most.minimum[index(Tier::kGpu)];
  const Plan tight = make_plan(setup, limits, 0);
  for (std::size_t i = 0; i < most.catalog.pools.size(); ++i) {
    if (most.catalog.pools[i].tier == Tier::kGpu) continue;
    EXPECT_EQ(tight.catalog.pools[i].slots, most.catalog.pools[i].slots);
  }
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

TEST(Plan, RefusalNamesTheClassesOfBytesOfThatTier) {
  schedule::Setup setup = setup_of({});
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kGpu),
              AllOf(HasSubstr("parameters "), HasSubstr("gradients "), HasSubstr("activations "),
                    HasSubstr("workspace "), ::testing::Not(HasSubstr("optimizer state"))));
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kNvme),
              AllOf(HasSubstr("(optimizer state "), ::testing::Not(HasSubstr("parameters"))));
}

TEST(Plan, OfMoreForwardsThanCanBePlannedIsRefusedAtOnce) {
  auto setup = setup_of({});
  setup.micro_batches = 1'000'000;
  try {
    make_plan(setup, kPlenty, 0);
    FAIL() << "five million forwards were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("lower train.gradient_accumulation_steps"));
  }
}

TEST(Plan, RefusalSaysWhatToMoveOrLower) {
  Placement p;
  EXPECT_THAT(refusal_one_byte_below(setup_of(p), Tier::kNvme),
              HasSubstr("name more tiers.nvme.paths"));

  p.state = OptimizerHome::kCpu;
  EXPECT_THAT(refusal_one_byte_below(setup_of(p), Tier::kCpu),
              HasSubstr("set zero_optimization.offload_optimizer.device: nvme"));

  schedule::Setup large = setup_of(p);
  large.workspace = 1_GiB;
  EXPECT_THAT(refusal_one_byte_below(large, Tier::kGpu),
              HasSubstr("lower train.train_micro_batch_size_per_gpu"));

  p.gradient = GradientHome::kNone;
  EXPECT_THAT(refusal_one_byte_below(setup_of(p), Tier::kGpu),
              HasSubstr("set zero_optimization.offload_gradient.device: cpu"));

  p.gradient = GradientHome::kCpu;
  p.param = ParamHome::kNone;
  p.micro_batches = 1;
  EXPECT_THAT(refusal_one_byte_below(setup_of(p), Tier::kGpu),
              HasSubstr("set zero_optimization.offload_param.device: cpu"));
}

}  // namespace
}  // namespace sluice::testing
