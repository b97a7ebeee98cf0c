/// How much work planning does, and what is decided when it is spent.
#include "engine/plan/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/plan/draft.h"
#include "engine/plan/placements.h"
#include "engine/plan/refusal.h"
#include "engine/plan/slots.h"
#include "engine/shape/presets.h"
#include "tests/plan/plans.h"

namespace sluice::testing {
namespace {

using plan::Budget;

/// Counted anew: every op, and every leaf that it reads and that it writes.
std::uint64_t units(const Plan& p) {
  std::uint64_t sum = 0;
  const auto& late = p.programs.delayed;
  for (const auto& program :
       {p.programs.init, p.programs.step, p.programs.evaluation, p.programs.checkpoint,
        p.programs.final, late.own_step, late.first_step, late.drain, late.checkpoint}) {
    if (!program) continue;
    for (std::size_t i = 0; i < program->ops().size(); ++i) {
      sum += 1 + program->accesses(i).reads.size() + program->accesses(i).writes.size();
    }
  }
  return sum;
}

TEST(Budget, IsSpentInWholeAndNeverBeyondItsEnd) {
  Budget budget(10);
  budget.spend(7);
  EXPECT_EQ(budget.left(), 3U);
  EXPECT_TRUE(budget.affords(3));
  EXPECT_FALSE(budget.affords(4));
  EXPECT_THROW(budget.spend(4), Error);
  EXPECT_EQ(budget.left(), 3U);
}

TEST(Budget, OfADraftIsItsOpsAndTheLeavesThatTheyName) {
  for (const auto update : {schedule::Update::kEnd, schedule::Update::kDelayed}) {
    Budget budget(plan::kPlanningWork);
    const auto draft = plan::write_draft(setup_of({.update = update}), 3, budget);
    ASSERT_TRUE(draft);
    EXPECT_EQ(plan::kPlanningWork - budget.left(), units(*draft));
  }
}

TEST(Budget, OfASimulatedStepIsTakenForEachNewTrialUntilTheShareIsSpent) {
  Budget budget(plan::kPlanningWork);
  const auto draft = plan::write_draft(setup_of({}), 0, budget);
  const auto cost = slow_machine();
  const std::uint64_t each = plan::work_of_trial(*draft);
  EXPECT_EQ(each, prefetch::kSteadySteps * plan::work_of(*draft->programs.step));
  const std::uint64_t before = budget.left();
  plan::Trials trials(*draft, cost, budget, 3 * each - 1);
  EXPECT_EQ(trials.left(), 2U);
  Slots slots = draft->minimum_slots;
  const double first = trials.seconds(slots);
  EXPECT_EQ(trials.seconds(slots), first);
  EXPECT_EQ(before - budget.left(), each) << "what is known costs nothing";
  ++slots[0];
  EXPECT_LT(trials.seconds(slots), std::numeric_limits<double>::infinity());
  ++slots[0];
  EXPECT_EQ(trials.seconds(slots), std::numeric_limits<double>::infinity());
  EXPECT_EQ(before - budget.left(), 2 * each);
  EXPECT_TRUE(trials.look(slots)) << "whatever the share";

  Budget spent(each - 1);
  plan::Trials none(*draft, cost, spent, plan::kPlanningWork);
  EXPECT_EQ(none.left(), 0U);
  EXPECT_FALSE(none.look(slots));
}

/// What is said before a program is written is true of it, and not far off: where few of its
/// ops are of the longest kind, an eighth of that.
TEST(Budget, KnowsBeforeADraftIsWrittenHowLongItGetsAtMost) {
  for (Placement placement : all_placements()) {
    for (const std::int64_t micro_batches : {1, 3, 20}) {
      for (const std::int64_t sweep : {1, 7, 20}) {
        for (const std::int64_t evaluation_batches : {0, 9, 200}) {
          auto setup = setup_of(placement);
          setup.micro_batches = micro_batches;
          setup.sweep = std::min(sweep, micro_batches);
          Budget budget(plan::kPlanningWork);
          const auto draft = plan::write_draft(setup, evaluation_batches, budget);
          const std::uint64_t most = plan::most_work(setup, evaluation_batches);
          ASSERT_LE(units(*draft), most) << placement << " " << micro_batches << "/" << setup.sweep;
          ASSERT_GE(units(*draft) * 8, most) << placement << " " << micro_batches;
        }
      }
    }
  }
}

Setup large(std::int64_t layers, std::int64_t hidden, ParamHome param, std::int64_t micro_batches) {
  shape::Decoder d = shape::find_preset("llama-8b");
  d.layers = layers;
  d.hidden = hidden;
  d.intermediate = 3 * hidden;
  d.heads = d.kv_heads = 8;
  d.head_dim = hidden / 8;
  Setup setup = schedule::make_setup(
      shape::make_model(d), {.offload_param = param, .offload_optimizer = OptimizerHome::kNvme});
  setup.compute = DType::kBf16;
  setup.seq_len = 1024;
  setup.micro_batches = micro_batches;
  setup.sweep = setup.streams_params() ? micro_batches : 1;
  setup.workspace = 1_GiB;
  return setup;
}

class Large : public ::testing::TestWithParam<schedule::Setup> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, Large,
    ::testing::Values(large(40, 4096, ParamHome::kNvme, 64),
                      schedule::with_chunks(large(16, 2048, ParamHome::kCpu, 8), 4_MiB),
                      large(400, 512, ParamHome::kNone, 4), large(400, 512, ParamHome::kNvme, 16)));

/// Far less than a run has, so that every decision meets an empty budget.
TEST_P(Large, IsPlannedWithinAnyBudgetThatWritesIt) {
  const schedule::Setup& setup = GetParam();
  const auto smallest = plan::sweep_choices(plan::chunk_choices(setup, 0).front(), 0).back();
  const std::uint64_t once = plan::most_work(smallest, 0);
  Limits tight = just(require_minimum(setup, kPlenty, 0));
  for (Bytes& bytes : tight.tiers) bytes += bytes / 5;
  for (const std::uint64_t work : {once, 2 * once, 5 * once, 12 * once}) {
    for (const Limits& limits : {kPlenty, tight}) {
      const Plan p = plan::make_plan(setup, limits, 0, slow_machine(), work);
      EXPECT_LE(p.work, work);
      EXPECT_GE(p.work, units(p)) << "the draft itself was not counted";
      EXPECT_GT(p.catalog.pools.size(), 0U);
    }
  }
}

/// The most micro-batches together, the preferred chunks, no kept layer.
TEST_P(Large, IsDecidedByRuleWhereNothingCanBeSimulated) {
  const schedule::Setup& setup = GetParam();
  const auto chunks = plan::chunk_choices(setup, 0);
  const auto sweeps = plan::sweep_choices(chunks.front(), 0);
  std::uint64_t drafts = plan::most_work(sweeps.back(), 0);  // of those that are written
  if (sweeps.size() > 1) drafts += plan::most_work(sweeps.front(), 0);
  const Plan p = plan::make_plan(setup, kPlenty, 0, slow_machine(), drafts);
  EXPECT_EQ(p.setup.kept_layers, 0);
  EXPECT_EQ(p.setup.sweep, setup.sweep);
  EXPECT_EQ(p.setup.chunks, chunks.front().chunks);
  ASSERT_LT(drafts / 8, plan::work_of_trial(p))
      << "an eighth of it is a share: something was tried";
  bool more = false;
  for (std::size_t i = 0; i < p.catalog.pools.size(); ++i) {
    more = more || p.catalog.pools[i].slots > p.minimum_slots[i];
  }
  EXPECT_TRUE(more) << "there is room for running ahead, and nothing was given";
}

TEST(Budget, LeftForDraftsButNotForTheirStepsKeepsNoLayer) {
  const auto setup = setup_of({.param = ParamHome::kNone, .micro_batches = 1});
  Budget all(plan::kPlanningWork);
  const auto draft = plan::write_draft(setup, 0, all);
  const std::uint64_t writing = plan::most_work(setup, 0);
  ASSERT_GT(make_plan(setup, kPlenty).setup.kept_layers, 0);
  // Shares are an eighth of what is left: each less than one trial.
  const std::uint64_t work = 7 * plan::work_of_trial(*draft);
  ASSERT_GT(work, 3 * writing) << "the drafts that keep layers are not even written";
  const Plan p = plan::make_plan(setup, kPlenty, 0, slow_machine(), work);
  EXPECT_EQ(p.setup.kept_layers, 0);
  EXPECT_GT(p.forecast.step_s, 0) << "one look at what was decided";
  const auto offers = plan::prospects(p, setup, 0, slow_machine(), work).offers;
  ASSERT_FALSE(offers.empty());
  for (const plan::Offer& offer : offers) {
    EXPECT_FALSE(offer.step_s) << "nobody knows what more memory would buy";
  }
}

TEST(Budget, ThatEndsBeforeAllChunksWereTriedSaysNothingOfWhatFits) {
  const auto setup = large(2, 512, ParamHome::kCpu, 1);
  const auto choices = plan::chunk_choices(setup, 0);
  ASSERT_GT(choices.size(), 1U);
  const Limits nothing = just({0, 0, 0});
  Budget one(plan::most_work(choices.front(), 0));
  EXPECT_FALSE(plan::smallest_draft(setup, nothing, 0, one));
  Budget all(plan::kPlanningWork);
  EXPECT_TRUE(plan::smallest_draft(setup, nothing, 0, all));
}

TEST(Budget, ThatEndsBeforeAllPlacementsWereTriedLeavesOpenWhetherOneFits) {
  Budget enough(plan::kPlanningWork);
  const auto draft = plan::smallest_draft(setup_of({}), just({0, 0, 0}), 0, enough);
  const auto refused = [&](Budget& budget) {
    const auto found = plan::search(*draft, 0, plan::Wanted::kLeastTraffic, budget);
    return std::string(plan::refusal(*draft, found).what());
  };
  EXPECT_THAT(refused(enough), ::testing::HasSubstr("no placement fits"));
  Budget few(4 * plan::most_work(setup_of({}), 0));
  EXPECT_THAT(refused(few), ::testing::HasSubstr("not every placement was looked at"));
}

TEST(Budget, IsNotSpentOnOtherPlacementsOnceOneFits) {
  Budget budget(plan::kPlanningWork);
  const auto draft = plan::smallest_draft(setup_of({}), just({0, 0, 0}), 0, budget);
  plan::Plan roomy = *draft;
  roomy.limits = kPlenty;
  const Budget few(8 * plan::most_work(setup_of({}), 0));
  const auto any = plan::search(roomy, 0, plan::Wanted::kAny, few);
  EXPECT_TRUE(any.fitting && any.complete);
  const auto least = plan::search(roomy, 0, plan::Wanted::kLeastTraffic, few);
  EXPECT_FALSE(least.complete);
}

}  // namespace
}  // namespace sluice::testing
