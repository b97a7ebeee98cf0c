/// What a setup leaves open: when the optimizer works, the chunks of auto, and how many layers keep
/// their forward.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/plan/draft.h"
#include "tests/plan/plans.h"

namespace sluice::testing {
namespace {

/// As tiny_model, but with layers of several MiB of state.
Setup wide_setup() {
  shape::Decoder d = tiny_model(TinyModel::kLlama).decoder;
  d.vocab = 8192;
  d.hidden = 512;
  d.heads = 8;
  d.kv_heads = 8;
  d.head_dim = 64;
  d.intermediate = 2048;
  Setup setup = schedule::make_setup(
      shape::make_model(d), {.offload_optimizer = OptimizerHome::kNvme, .sub_group_size = {}});
  setup.micro_batch_size = 1;
  setup.seq_len = 16;
  return setup;
}

TEST(Choose, CutsTheChunksOfAutoSoThatTheyFit) {
  const auto setup = wide_setup();
  const Plan most = make_plan(setup, kPlenty);
  ASSERT_TRUE(most.setup.homes.sub_group_size.has_value());
  const Plan again = make_plan(most.setup, kPlenty);
  EXPECT_EQ(again.setup.homes.sub_group_size, most.setup.homes.sub_group_size);
  EXPECT_EQ(again.planned, most.planned);

  auto fixed = setup;
  fixed.homes.sub_group_size = 32_MiB;  // what make_setup cuts for auto
  Limits limits = kPlenty;
  limits.tiers[index(Tier::kCpu)] = require_minimum(fixed, kPlenty, 0)[index(Tier::kCpu)] - 1;
  EXPECT_THROW(require_minimum(fixed, limits, 0), Error);
  const Plan smaller = make_plan(setup, limits);
  EXPECT_LT(*smaller.setup.homes.sub_group_size, 32_MiB);
  EXPECT_LE(smaller.planned[index(Tier::kCpu)], limits.tiers[index(Tier::kCpu)]);
  EXPECT_GT(smaller.setup.chunks[0].size(), setup.chunks[0].size());
}

/// With large chunks where ops are slow; with small ones where there is room for one large chunk
/// only.
TEST(Choose, CutsTheChunksOfAutoSoThatTheStepIsShortest) {
  plan::Rates slow_ops;
  slow_ops.op_s = 1;
  Limits tight = kPlenty;
  tight.tiers[index(Tier::kCpu)] =
      require_minimum(schedule::with_chunks(wide_setup(), 32_MiB), kPlenty, 0)[index(Tier::kCpu)];
  plan::Rates slow_bytes;
  slow_bytes.nvme_read = slow_bytes.nvme_write = {1e6, 2e6};
  slow_bytes.adam = 1e6;
  slow_bytes.op_s = 1e-6;
  std::vector<Bytes> chosen;
  for (const auto& [rates, limits] : {std::pair{slow_ops, kPlenty}, {slow_bytes, tight}}) {
    const auto cost = plan::cost_model(rates, schedule::make_lanes());
    const auto plan_with = [&, &within = limits](std::optional<Bytes> size) {
      return plan::make_plan(schedule::with_chunks(wide_setup(), size), within, 0, cost);
    };
    std::vector<double> steps;
    for (const Bytes size : {32_MiB, 16_MiB, 8_MiB, 4_MiB}) {
      steps.push_back(plan_with(size).forecast.step_s);
    }
    const auto [best, worst] = std::ranges::minmax(steps);
    ASSERT_GT(worst, best * 1.1) << "all sizes are alike: this shows nothing";
    const Plan p = plan_with(std::nullopt);
    EXPECT_LE(p.forecast.step_s, best * 1.02);
    chosen.push_back(*p.setup.homes.sub_group_size);
  }
  EXPECT_GT(chosen.front(), chosen.back());
}

TEST(Choose, KeepsTheChunksThatTheFileGives) {
  auto setup = wide_setup();
  setup.homes.sub_group_size = 32_MiB;
  const Plan p = make_plan(setup, kPlenty);
  EXPECT_EQ(p.setup.homes.sub_group_size, 32_MiB);
  EXPECT_EQ(p.setup.chunks, setup.chunks);
}

/// What a kept layer takes is not there for running ahead. Here it saves nothing, and an op of each
/// layer takes as long as its gradient's way to the host.
TEST(Choose, LetsNoLayerKeepItsForwardWhereThatMakesTheStepLonger) {
  const auto setup = setup_of({.param = ParamHome::kNone, .micro_batches = 3});
  plan::Rates rates;
  rates.copy = 1e6;
  rates.op_s = 1e-6;
  for (const auto id : {schedule::OpId::kLayerBackward, schedule::OpId::kLayerBackwardKept}) {
    rates.compute[id] = {0, 0, 0.1};
  }
  const auto cost = plan::cost_model(rates, schedule::make_lanes());
  auto told = setup;
  told.homes.recompute = schedule::Recompute::kEveryLayer;
  auto all = setup;
  all.kept_layers = setup.model->decoder.layers;
  const Bytes least = require_minimum(all, kPlenty, 0)[index(Tier::kGpu)];
  bool any = false;  // keeping them would cost time
  for (const Bytes more : {0_KiB, 64_KiB, 128_KiB, 192_KiB, 256_KiB}) {
    Limits limits = kPlenty;
    limits.tiers[index(Tier::kGpu)] = least + more;
    const double without = plan::make_plan(told, limits, 0, cost).forecast.step_s;
    any = any || plan::make_plan(all, limits, 0, cost).forecast.step_s > without * 1.05;
    EXPECT_LE(plan::make_plan(setup, limits, 0, cost).forecast.step_s, without * 1.02);
  }
  EXPECT_TRUE(any) << "running ahead is worth nothing here: this shows nothing";
}

/// Also where weights are streamed; not where the run file asks for the least.
TEST(Choose, LetsTheHeadKeepItsLogitsWhereTheyFitTheDevice) {
  for (const ParamHome home : {ParamHome::kNone, ParamHome::kCpu}) {
    auto setup = setup_of({.param = home, .micro_batches = 1});
    EXPECT_FALSE(make_plan(setup, kPlenty).setup.keeps_logits) << "there is no second pass";
    setup.logits = 1_MiB;
    plan::Rates rates;
    rates.flops = 1e8;  // what takes time is computing
    const auto cost = plan::cost_model(rates, schedule::make_lanes());
    const Plan keeps = plan::make_plan(setup, kPlenty, 0, cost);
    EXPECT_TRUE(keeps.setup.keeps_logits);
    EXPECT_EQ(keeps.minimum, require_minimum(setup, kPlenty, 0)) << "it could do without";
    Limits limits = kPlenty;
    limits.tiers[index(Tier::kGpu)] = keeps.minimum[index(Tier::kGpu)] + 1_MiB - 1;
    const Plan none = plan::make_plan(setup, limits, 0, cost);
    EXPECT_FALSE(none.setup.keeps_logits);
    EXPECT_LT(keeps.forecast.step_s, none.forecast.step_s);
    EXPECT_FALSE(none.forecast.has_all);
    setup.homes.recompute = schedule::Recompute::kEveryLayer;
    EXPECT_FALSE(plan::make_plan(setup, kPlenty, 0, cost).setup.keeps_logits);
  }
}

TEST(Choose, LetsAsManyLayersKeepTheirForwardAsFitTheDevice) {
  const auto setup = setup_of({.param = ParamHome::kNone, .micro_batches = 1});
  const std::int64_t layers = setup.model->decoder.layers;
  plan::Rates rates;
  rates.flops = 1e8;  // what takes time is computing
  const auto cost = plan::cost_model(rates, schedule::make_lanes());
  const auto make_plan = [&](const schedule::Setup& one, const Limits& limits) {
    return plan::make_plan(one, limits, 0, cost);
  };
  const Plan most = make_plan(setup, kPlenty);
  EXPECT_EQ(most.setup.kept_layers, layers);
  EXPECT_EQ(most.minimum, require_minimum(setup, kPlenty, 0)) << "it could keep none";

  auto two = setup;
  two.kept_layers = 2;
  const BytesByTier minimum = require_minimum(setup, kPlenty, 0);
  Limits limits = kPlenty;
  limits.tiers[index(Tier::kGpu)] = require_minimum(two, kPlenty, 0)[index(Tier::kGpu)];
  const Plan some = make_plan(setup, limits);
  limits.tiers[index(Tier::kGpu)] = minimum[index(Tier::kGpu)];
  const Plan none = make_plan(setup, limits);
  EXPECT_EQ(some.setup.kept_layers, 2);
  EXPECT_EQ(none.setup.kept_layers, 0);
  EXPECT_LT(most.forecast.step_s, some.forecast.step_s);
  EXPECT_LT(some.forecast.step_s, none.forecast.step_s);

  // Room that the head has taken is none for layers.
  auto head = two;
  head.logits = 16_KiB;
  limits.tiers[index(Tier::kGpu)] = require_minimum(two, kPlenty, 0)[index(Tier::kGpu)] + 20_KiB;
  head.kept_layers = 0;
  EXPECT_TRUE(make_plan(head, limits).setup.keeps_logits);
  EXPECT_EQ(make_plan(head, limits).setup.kept_layers, 2);
  limits.tiers[index(Tier::kGpu)] -= 5_KiB;
  EXPECT_TRUE(make_plan(head, limits).setup.keeps_logits);
  EXPECT_EQ(make_plan(head, limits).setup.kept_layers, 1);

  auto streamed = setup;
  streamed.homes.offload_param = ParamHome::kCpu;
  EXPECT_EQ(make_plan(streamed, kPlenty).setup.kept_layers, 0);
  auto told = setup;
  told.homes.recompute = schedule::Recompute::kEveryLayer;
  EXPECT_EQ(make_plan(told, kPlenty).setup.kept_layers, 0);
}

/// Three micro-batches and state on nvme; clipped by segment.
Setup open_update(const Placement& placement = {}) {
  Setup setup = setup_of(placement);
  setup.clips_segments = setup.may_arrive = setup.picks_update = true;
  return setup;
}

TEST(Update, IsTheShorterOneOfThoseAllowed) {
  plan::Rates slow_adam;
  slow_adam.adam = 1e6;
  slow_adam.nvme_read = slow_adam.nvme_write = {1e12, 1e12};
  slow_adam.flops = 1e9;
  slow_adam.op_s = 1e-7;
  plan::Rates slow_drives = slow_adam;
  slow_drives.adam = 1e12;
  slow_drives.nvme_read = slow_drives.nvme_write = {1e6, 1e6};
  for (const plan::Rates& rates : {slow_adam, slow_drives}) {
    const auto cost = plan::cost_model(rates, schedule::make_lanes());
    const auto planned = [&](const auto& setup) {
      return plan::make_plan(setup, kPlenty, 0, cost);
    };
    const Plan open = planned(open_update());
    const Plan end = planned(plan::with_update(open_update(), schedule::Update::kEnd));
    const Plan arriving = planned(plan::with_update(open_update(), schedule::Update::kArriving));
    EXPECT_LE(open.forecast.step_s, 1.01 * std::min(end.forecast.step_s, arriving.forecast.step_s));
    const bool arrives = open.setup.update == schedule::Update::kArriving;
    const auto others = plan::prospects(open, open_update(), 0, cost).alternatives;
    ASSERT_EQ(others.size(), 2U);
    const plan::Alternative& other = others.front();
    EXPECT_EQ(other.update, arrives ? schedule::Update::kEnd : schedule::Update::kArriving);
    EXPECT_TRUE(other.allowed);
    EXPECT_EQ(other.lacks, 0U);
    const Plan& asked = arrives ? end : arriving;
    EXPECT_EQ(other.step_s, asked.forecast.step_s);
    // It gives other numbers, so nobody gets it who did not ask for it.
    const plan::Alternative& late = others.back();
    EXPECT_EQ(late.update, schedule::Update::kDelayed);
    EXPECT_TRUE(late.allowed && late.lacks == 0);
    const auto delays = plan::with_update(open_update(), schedule::Update::kDelayed);
    const Plan delayed = planned(delays);
    EXPECT_EQ(late.step_s, delayed.forecast.step_s);
    const auto of_delayed = plan::prospects(delayed, delays, 0, cost).alternatives;
    ASSERT_EQ(of_delayed.size(), 2U);
    EXPECT_EQ(of_delayed.front().step_s, end.forecast.step_s);
  }
}

/// In horizontal order new weights of the whole model wait, so all micro-batches together may be
/// what takes less.
TEST(Update, DelayedFitsWhereEitherOrderDoes) {
  schedule::Setup setup = setup_of({.param = ParamHome::kNone,
                                    .state = schedule::OptimizerHome::kCpu,
                                    .update = schedule::Update::kDelayed});
  const auto minimum_of = [&](std::int64_t sweep) {
    schedule::Setup fixed = setup;
    fixed.sweep = sweep;
    plan::Budget budget(plan::kPlanningWork);
    return plan::write_draft(fixed, 0, budget)->minimum;
  };
  const BytesByTier all = minimum_of(3), one = minimum_of(1);
  EXPECT_GT(one[index(Tier::kCpu)], all[index(Tier::kCpu)]);
  EXPECT_LT(one[index(Tier::kGpu)], all[index(Tier::kGpu)]);
  for (const auto& [limits, sweep] : {std::pair{all, 3}, {one, 1}}) {
    EXPECT_EQ(make_plan(setup, Limits{limits, plan::kEndless}).setup.sweep, sweep);
  }
}

/// Computing takes nearly all of the step: of one micro-batch gradients are the most, of many their
/// block inputs.
TEST(Update, TakesLessMemoryWhereTimesAreAlike) {
  plan::Rates slow;
  slow.flops = 1e3;
  const auto cost = plan::cost_model(slow, schedule::make_lanes());
  const auto memory = [](const BytesByTier& bytes) {
    return bytes[index(Tier::kGpu)] + bytes[index(Tier::kCpu)];
  };
  for (const auto& [micro_batches, update] :
       {std::pair{1, schedule::Update::kArriving}, {256, schedule::Update::kEnd}}) {
    const auto setup = open_update({.param = ParamHome::kNone, .micro_batches = micro_batches});
    const Plan p = plan::make_plan(setup, kPlenty, 0, cost);
    EXPECT_EQ(p.setup.update, update);
    const plan::Alternative other = plan::prospects(p, setup, 0, cost).alternatives.at(0);
    EXPECT_NEAR(*other.step_s, p.forecast.step_s, 0.01 * p.forecast.step_s);
    const Plan asked = plan::make_plan(plan::with_update(setup, other.update), kPlenty, 0, cost);
    EXPECT_LT(memory(p.planned), memory(asked.planned));
  }
}

TEST(Update, SaysWhatIsNotAllowedAndWhatDoesNotFit) {
  auto setup = open_update({.micro_batches = 1});
  setup.may_arrive = false;
  const Plan whole = make_plan(setup, kPlenty);
  EXPECT_EQ(whole.setup.update, schedule::Update::kEnd);
  const plan::Alternative arriving = prospects(whole, setup).alternatives.at(0);
  EXPECT_TRUE(!arriving.allowed && arriving.lacks == 0);
  Limits tight = kPlenty;
  tight.tiers[index(Tier::kCpu)] = require_minimum(setup, kPlenty, 0)[index(Tier::kCpu)] - 1;
  setup.may_arrive = true;
  const Plan less = make_plan(setup, tight);
  EXPECT_EQ(less.setup.update, schedule::Update::kArriving);
  const plan::Alternative end = prospects(less, setup).alternatives.at(0);
  EXPECT_TRUE(end.allowed);
  EXPECT_EQ(end.lacks, 1U);
}

/// Whatever each of them would have beyond its minimum.
TEST(Update, ArrivingIsSaidToNeedLessAndDelayedMore) {
  for (const ParamHome param : {ParamHome::kNone, ParamHome::kCpu, ParamHome::kNvme}) {
    for (const auto state : {schedule::OptimizerHome::kCpu, schedule::OptimizerHome::kNvme}) {
      const auto setup =
          plan::with_update(open_update({.param = param, .state = state, .micro_batches = 1}),
                            schedule::Update::kEnd);
      const auto said = prospects(make_plan(setup, kPlenty), setup);
      ASSERT_EQ(said.alternatives.size(), 2U);
      const auto cpu = [](const BytesByTier& bytes) { return bytes[index(Tier::kCpu)]; };
      const auto host = [&](const BytesByTier& bytes) {
        return bytes[index(Tier::kGpu)] + cpu(bytes);
      };
      EXPECT_EQ(host(said.minimum), host(require_minimum(setup, kPlenty, 0)));
      EXPECT_LT(cpu(said.alternatives.front().minimum), cpu(said.minimum));
      EXPECT_GT(cpu(said.alternatives.back().minimum), cpu(said.minimum));
      EXPECT_GE(host(said.alternatives.back().minimum), host(said.minimum));
    }
  }
}

}  // namespace
}  // namespace sluice::testing
