/// How many micro-batches go through the layers together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/plan/draft.h"
#include "engine/plan/slots.h"
#include "tests/plan/plans.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;

Setup streamed(std::int64_t micro_batches, ActivationHome activation = ActivationHome::kNone) {
  auto setup = setup_of({.activation = activation, .micro_batches = micro_batches});
  setup.grad_dtype = schedule::GradDType::kF32;  // so that one micro-batch is summed too
  return setup;
}

std::vector<std::int64_t> sweeps(const schedule::Setup& setup) {
  std::vector<std::int64_t> all;
  for (const schedule::Setup& choice : plan::sweep_choices(setup, 0)) all.push_back(choice.sweep);
  return all;
}

TEST(Sweep, MayBeAllOfTheMicroBatchesOrHalfAndSoOnDownToOne) {
  EXPECT_THAT(sweeps(streamed(13)), ElementsAre(13, 7, 4, 2, 1));
  EXPECT_THAT(sweeps(streamed(1)), ElementsAre(1));
  auto resident = setup_of({.param = ParamHome::kNone, .micro_batches = 13});
  EXPECT_THAT(sweeps(resident), ElementsAre(1));
}

TEST(Sweep, OfOneMakesTheMinimumIndependentOfTheNumberOfMicroBatches) {
  for (const auto activation :
       {ActivationHome::kNone, ActivationHome::kCpu, ActivationHome::kNvme}) {
    const BytesByTier few = require_minimum(streamed(4, activation), kPlenty, 0);
    BytesByTier many = require_minimum(streamed(64, activation), kPlenty, 0);
    // One record per micro-batch holds its loss until the step's end.
    many[index(Tier::kCpu)] -= 60 * round_up(schedule::sizes_of(streamed(4)).record, kAlignment);
    EXPECT_EQ(many, few);
  }
}

TEST(Sweep, IsAsLongAsFitsWhereFetchingBounds) {
  plan::Rates rates;
  rates.copy = 1e6;
  rates.op_s = 1e-6;
  const auto cost = plan::cost_model(rates, schedule::make_lanes());
  const auto setup = streamed(16);
  EXPECT_EQ(plan::make_plan(setup, kPlenty, 0, cost).setup.sweep, 16);
  std::int64_t last = 16;
  for (const schedule::Setup& choice : plan::sweep_choices(setup, 0)) {
    plan::Budget budget(plan::kPlanningWork);
    const auto draft = plan::write_draft(choice, 0, budget);
    Limits limits = kPlenty;
    limits.tiers[index(Tier::kGpu)] = draft->minimum[index(Tier::kGpu)];
    const Plan p = plan::make_plan(setup, limits, 0, cost);
    EXPECT_LE(p.setup.sweep, last);
    EXPECT_LE(p.setup.sweep, choice.sweep) << "more than fit";
    last = p.setup.sweep;
    if (choice.sweep == 1) continue;
    // Half as many leave room to fetch ahead; a quarter only fetches more.
    EXPECT_GE(p.setup.sweep * 2, choice.sweep);
  }
  EXPECT_EQ(last, 1);
}

/// Halving stops where it no longer wins by 1%, so it may miss that for each that was left, and the
/// last 1% of its own slots.
TEST(Sweep, IsHalvedWhereWhatItLeavesShortensTheStep) {
  const auto setup = streamed(16);
  plan::Rates rates;
  rates.copy = 1e6;
  rates.flops = 2e9;
  rates.op_s = 1e-6;
  const auto cost = plan::cost_model(rates, schedule::make_lanes());
  plan::Budget budget(plan::kPlanningWork);
  Limits limits = kPlenty;
  limits.tiers[index(Tier::kGpu)] = plan::write_draft(setup, 0, budget)->minimum[index(Tier::kGpu)];
  std::vector<double> each;  // every sweep with the slots that are best for it
  for (const schedule::Setup& choice : plan::sweep_choices(setup, 0)) {
    const auto draft = plan::write_draft(choice, 0, budget);
    plan::Chooser chooser(*draft, cost, budget, plan::kPlanningWork / 8);
    each.push_back(chooser.choose(limits).seconds);
  }
  const double best = *std::ranges::min_element(each);
  ASSERT_LT(best, each.front() * 0.98) << "vertical order is as good: this shows nothing";
  const Plan p = plan::make_plan(setup, limits, 0, cost);
  EXPECT_LT(p.setup.sweep, 16);
  double missed = 1.01;
  for (std::int64_t left = p.setup.sweep; left > 1; left = (left + 1) / 2) missed /= 0.99;
  EXPECT_LE(p.forecast.step_s, best * missed);
}

TEST(Sweep, IsRefusedOnlyWhereOneMicroBatchAtATimeIsTooMuch) {
  const auto setup = streamed(16);
  auto one = setup;
  one.sweep = 1;
  const BytesByTier minimum = require_minimum(one, kPlenty, 0);
  EXPECT_EQ(require_minimum(setup, just(minimum), 0), minimum);
  EXPECT_NO_THROW(plan::require_any_placement(setup, just(minimum), 0));
  const Plan p = make_plan(setup, just(minimum));
  EXPECT_EQ(p.setup.sweep, 1);
  EXPECT_EQ(p.planned, minimum);
  Limits limits = just(minimum);
  --limits.tiers[index(Tier::kGpu)];
  EXPECT_THROW(require_minimum(setup, limits, 0), Error);
  EXPECT_THROW(make_plan(setup, limits), Error);
}

TEST(Sweep, OfAnotherPlacementIsItsOwn) {
  // Resident weights do not fit: what is suggested streams them, one micro-batch at a time.
  const Placement resident{.param = ParamHome::kNone, .micro_batches = 16};
  auto one = streamed(16);
  one.grad_dtype = setup_of(resident).grad_dtype;
  one.sweep = 1;
  const Limits limits = just(require_minimum(one, kPlenty, 0));
  try {
    require_minimum(setup_of(resident), limits, 0);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("offload_param.device: cpu"));
  }
}

TEST(Sweep, OfAPlacementWhoseWeightsStayIsOne) {
  // Streamed weights do not fit the cpu tier: what is suggested keeps them, and one micro-batch's
  // activations at a time.
  const Limits limits = just(require_minimum(
      setup_of({.param = ParamHome::kNone, .gradient = GradientHome::kNone, .micro_batches = 16}),
      kPlenty, 0));
  try {
    require_minimum(setup_of({.micro_batches = 16}), limits, 0);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("offload_param.device: none"),
                                               ::testing::HasSubstr("which fits")));
  }
}

}  // namespace
}  // namespace sluice::testing
