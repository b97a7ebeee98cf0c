#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "engine/plan/plan.h"

namespace sluice::plan {
namespace {

Plan plan_of(const prefetch::BytesByTier& minimum, const prefetch::BytesByTier& planned,
             const prefetch::BytesByTier& limits) {
  Plan plan;
  plan.minimum = minimum;
  plan.planned = planned;
  plan.limits = {limits, kEndless};
  return plan;
}

TEST(Report, HasOneLinePerTierInUse) {
  EXPECT_EQ(report(plan_of({2_GiB, 4_GiB, 8_GiB}, {3_GiB, 5_GiB, 8_GiB}, {6_GiB, 8_GiB, 16_GiB})),
            "gpu  tier: serial minimum 2.0 GiB, planned 3.0 GiB of 6.0 GiB\n"
            "cpu  tier: serial minimum 4.0 GiB, planned 5.0 GiB of 8.0 GiB\n"
            "nvme tier: serial minimum 8.0 GiB, planned 8.0 GiB of 16.0 GiB");
}

TEST(Report, LeavesOutATierThatIsNotUsed) {
  EXPECT_EQ(
      report(plan_of({2_GiB, 4_GiB, 0}, {3_GiB, 5_GiB, 0}, {6_GiB, 8_GiB, 16_GiB})).find("nvme"),
      std::string::npos);
}

TEST(Report, SaysHowLongAStepTakesAndWhatMoreMemoryWouldBuy) {
  Plan plan = plan_of({2_GiB, 4_GiB, 0}, {3_GiB, 5_GiB, 0}, {6_GiB, 8_GiB, 0});
  plan.forecast = {12.34, "nvme-write", 0.917};
  EXPECT_THAT(
      report(plan),
      ::testing::EndsWith("\nsimulated step: 12.3 s, bound nvme-write 92%, optimizer.update end"));
  const Prospects offers{
      {{prefetch::Tier::kGpu, 1_GiB, 12.33}, {prefetch::Tier::kCpu, 1_GiB, 11.1}}};
  EXPECT_EQ(report(offers, plan),
            "\n1.0 GiB more of tiers.gpu.limit: nothing"
            "\n1.0 GiB more of tiers.cpu.limit: step 12.3 -> 11.1 s (simulated)");
}

TEST(Report, SaysWhatAnotherTimeOfTheUpdateWouldTake) {
  Plan plan = plan_of({2_GiB, 4_GiB, 0}, {3_GiB, 5_GiB, 0}, {6_GiB, 8_GiB, 0});
  plan.forecast = {10, "cpu", 0.9};
  const auto expect_end = [&](const plan::Alternative& other, const std::string& end) {
    EXPECT_THAT(report(Prospects{{}, {other}, {2_GiB, 4_GiB, 0}}, plan), ::testing::EndsWith(end));
  };
  const auto arriving = schedule::Update::kArriving;
  expect_end({arriving, true, 0, 8, {3_GiB, 1_GiB, 0}},
             "\noptimizer.update: arriving would take 0.80x the time, its serial minimum 1.0 GiB "
             "more of tiers.gpu, 3.0 GiB less of tiers.cpu");
  for (const double alike : {9.95, 10.05}) {
    expect_end({arriving, false, 0, alike, {2_GiB, 4_GiB, 0}},
               "arriving would take as long; not with this run's clipping and skipping: "
               "docs/update.md");
  }
  expect_end({arriving, true, 3_GiB},
             "\noptimizer.update: arriving would not fit, its serial minimum lacks 3.0 GiB");
  expect_end({.update = arriving, .allowed = true},
             "arriving is not known, a step is too long to be simulated that often");
  expect_end(
      {schedule::Update::kDelayed, true, 0, 5, {2_GiB, 5_GiB, 0}},
      "delayed would take 0.50x the time, its serial minimum 1.0 GiB more of tiers.cpu; each "
      "update one step late, another run: docs/update.md");
  plan.forecast.checked_s = 20;  // what it is compared with makes no checks
  expect_end({arriving, true, 0, 8, {2_GiB, 4_GiB, 0}}, "0.80x the time");
  EXPECT_THAT(report(plan), ::testing::HasSubstr("simulated step: 20 s"));
  plan.setup.update = arriving;
  EXPECT_THAT(report(plan), ::testing::EndsWith("bound cpu 90%, optimizer.update arriving"));
}

/// 5 GB in 10 s are 43.2 TB a day.
TEST(Report, SaysWhatDrivesMoveAndAreWornByAndWhereThatIsHidden) {
  auto residents = std::make_shared<prefetch::Residents>();
  residents->seal();
  auto step = std::make_shared<prefetch::Program>("step", residents);
  for (const auto lane : {schedule::LaneKind::kNvmeRead, schedule::LaneKind::kNvmeWrite}) {
    prefetch::Op op;
    op.lane = schedule::lane_of(lane);
    op.cost.bytes = lane == schedule::LaneKind::kNvmeRead ? 7e9 : 5e9;
    step->op(op);
  }
  step->seal();
  Plan plan = plan_of({1_GiB, 0, 0}, {1_GiB, 0, 0}, {1_GiB, 0, 0});
  plan.lanes = schedule::make_lanes();
  plan.programs.step = step;
  plan.forecast = {10, "nvme-write", 0.9, {9, 12345.4}};
  plan.setup.micro_batch_size = 2;
  plan.setup.seq_len = 512;
  const std::string first =
      "bound nvme-write 90%, optimizer.update end\n"
      "drives: 7 GB read and 5 GB written each step, 43.2 TB a day at that pace\n"
      "drives: 9 s of each step; ";
  EXPECT_THAT(report(plan),
              ::testing::EndsWith(first + "computing takes as long at 12345 tokens a step, 1024 in "
                                          "each micro-batch"));
  // 500 steps of 10 s.
  EXPECT_THAT(report(plan, Bytes{2'503'000'000'000}),
              ::testing::EndsWith("\ndrives: 2503GB of writes are used up after 500 steps, 0.0579 "
                                  "days at that pace"));
  plan.forecast.hiding.tokens = std::nullopt;
  EXPECT_THAT(
      report(plan),
      ::testing::EndsWith(first + "with more tokens a step they only take longer than computing"));
  plan.forecast.hiding.tokens = 1024;
  EXPECT_THAT(report(plan),
              ::testing::EndsWith(first + "computing takes longer, of one micro-batch too"));
  plan.forecast.hiding.op_by_op = true;
  EXPECT_THAT(report(plan), ::testing::EndsWith(first + "nothing is computed meanwhile"));
}

TEST(Report, ListsThePoolsThatBytesMoveThrough) {
  auto residents = std::make_shared<prefetch::Residents>();
  residents->buffer({1, 1_MiB, prefetch::MemoryTag::kParam});
  residents->seal();
  auto step = std::make_shared<prefetch::Program>("step", residents);
  step->buffer({0, 1_MiB, prefetch::MemoryTag::kParam});
  step->seal();
  Plan plan = plan_of({1_GiB, 0, 0}, {1_GiB, 0, 0}, {1_GiB, 0, 0});
  plan.catalog.pools = {{"gpu fetched", prefetch::Tier::kGpu, 1_MiB, 5},
                        {"gpu home", prefetch::Tier::kGpu, 1_MiB, 7}};
  plan.minimum_slots = {3, 7};
  plan.programs.step = step;
  EXPECT_THAT(report(plan),
              ::testing::HasSubstr("\n      5 slots (serial minimum 3) of gpu fetched"));
  EXPECT_THAT(report(plan), ::testing::Not(::testing::HasSubstr("gpu home")));
}

TEST(Report, SaysHowManyMicroBatchesGoTogetherWhereThereIsAChoice) {
  Plan plan = plan_of({1_GiB, 0, 0}, {1_GiB, 0, 0}, {1_GiB, 0, 0});
  plan.setup.homes.offload_param = schedule::ParamHome::kCpu;
  plan.setup.micro_batches = 15;
  plan.setup.sweep = 4;
  EXPECT_THAT(report(plan), ::testing::HasSubstr(
                                "\n4 of 15 micro-batches go through the layers together: weights "
                                "are fetched 4 times a step, for forward and for backward"));
  plan.setup.sweep = 15;
  EXPECT_THAT(report(plan), ::testing::HasSubstr("\n15 of 15 micro-batches go through the layers "
                                                 "together: weights are fetched once a step"));
  const auto nothing_of_it = ::testing::Not(::testing::HasSubstr("together"));
  plan.setup.homes.offload_param = schedule::ParamHome::kNone;
  EXPECT_THAT(report(plan), nothing_of_it);
  plan.setup.homes.offload_param = schedule::ParamHome::kNvme;
  plan.setup.micro_batches = plan.setup.sweep = 1;
  EXPECT_THAT(report(plan), nothing_of_it);
}

TEST(Report, SaysHowManyLayersKeepTheirForwardIfAny) {
  Plan plan = plan_of({1_GiB, 0, 0}, {1_GiB, 0, 0}, {1_GiB, 0, 0});
  shape::Model twelve;
  twelve.decoder.layers = 12;
  plan.setup.model = std::make_shared<const shape::Model>(twelve);
  EXPECT_THAT(report(plan), ::testing::Not(::testing::HasSubstr("keep")));
  plan.setup.kept_layers = 5;
  EXPECT_THAT(report(plan), ::testing::HasSubstr("\n5 of 12 layers keep their forward"));
}

TEST(Report, SaysWhenTheHeadKeepsItsLogits) {
  Plan plan = plan_of({1_GiB, 0, 0}, {1_GiB, 0, 0}, {1_GiB, 0, 0});
  plan.setup.logits = 3_MiB;
  EXPECT_THAT(report(plan), ::testing::Not(::testing::HasSubstr("keep")));
  plan.setup.keeps_logits = true;
  EXPECT_THAT(report(plan), ::testing::HasSubstr("\nthe head keeps its logits, 3.0 MiB, for"));
}

TEST(Report, SaysWhatAStepMovesOnEachLanePerParameter) {
  auto residents = std::make_shared<prefetch::Residents>();
  residents->seal();
  auto step = std::make_shared<prefetch::Program>("step", residents);
  Plan plan = plan_of({1_GiB, 0, 0}, {1_GiB, 0, 0}, {1_GiB, 0, 0});
  shape::TensorSpec weight;
  weight.shape = {10, 100};
  shape::Model one_tensor;
  one_tensor.segments.resize(1);
  one_tensor.segments[0].tensors.push_back(weight);
  plan.setup.model = std::make_shared<const shape::Model>(one_tensor);
  plan.lanes = {{"compute"}, {"h2d"}, {"nvme-read"}};
  for (const auto& [lane, bytes] : {std::pair{1U, 1500.0}, {1U, 500.0}, {2U, 12000.0}}) {
    prefetch::Op op;
    op.lane = lane;
    op.cost.bytes = bytes;
    step->op(op);
  }
  step->seal();
  plan.programs.step = step;
  EXPECT_THAT(
      report(plan),
      ::testing::HasSubstr("\neach step moves, in bytes per parameter: h2d 2.0, nvme-read 12.0"));
}

}  // namespace
}  // namespace sluice::plan
