/// What is said when a tier is too small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/plans.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const Setup& setup, const Limits& limits) {
  try {
    require_minimum(setup, limits, 0);
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
  limits.tiers[index(tier)] = require_minimum(setup, kPlenty, 0)[index(tier)] - 1;
  return refusal(setup, limits);
}

TEST(Refusal, ComesWhenAnyTierIsOneByteSmaller) {
  for (const auto param : {ParamHome::kNone, ParamHome::kCpu, ParamHome::kNvme}) {
    const auto setup = setup_of({.param = param, .micro_batches = 1});
    const BytesByTier minimum = require_minimum(setup, kPlenty, 0);
    for (const Tier tier : kTiers) {
      if (minimum[index(tier)] == 0) continue;
      Limits limits = just(minimum);
      --limits.tiers[index(tier)];
      EXPECT_THAT(refusal(setup, limits),
                  AllOf(HasSubstr("the " + std::string(name_of(tier)) + " tier is too small"),
                        HasSubstr("(1 B) short"),
                        HasSubstr("tiers." + std::string(name_of(tier)) + ".limit")));
    }
  }
}

TEST(Refusal, NamesEveryTierThatIsTooSmall) {
  const auto setup = setup_of({});
  Limits limits = just(require_minimum(setup, kPlenty, 0));
  limits.tiers[index(Tier::kCpu)] -= 1;
  limits.tiers[index(Tier::kNvme)] -= 16_KiB;
  EXPECT_THAT(refusal(setup, limits),
              AllOf(HasSubstr("the cpu tier is too small"),
                    HasSubstr("raise the limit (tiers.nvme.limit too, by 16.0 KiB)")));
}

/// Where the device computes in host memory, what one tier gives up the other one needs.
TEST(Refusal, CountsOneMemoryOnce) {
  const auto setup = setup_of({.state = OptimizerHome::kCpu});
  const auto minimum = require_minimum(setup, kPlenty, 0);
  Limits limits = kPlenty;
  limits.tiers[index(Tier::kCpu)] = minimum[index(Tier::kCpu)] - 1;
  limits.tiers[index(Tier::kNvme)] = 0;
  EXPECT_THAT(refusal(setup, limits), HasSubstr("which fits"));
  limits.host = limits.tiers[index(Tier::kCpu)];
  EXPECT_THAT(refusal(setup, limits), AllOf(HasSubstr("no placement fits"), HasSubstr("lacks")));
}

TEST(Refusal, OfOneMemoryThatIsTooSmallForBothTiersSaysWhatEachNeeds) {
  auto setup = setup_of({.state = OptimizerHome::kCpu});
  const auto minimum = require_minimum(setup, kPlenty, 0);
  Limits limits = kPlenty;
  limits.host = minimum[index(Tier::kGpu)] + minimum[index(Tier::kCpu)];
  EXPECT_EQ(require_minimum(setup, limits, 0), minimum);
  limits.host -= 1;
  EXPECT_THAT(refusal(setup, limits),
              AllOf(HasSubstr("the host memory is too small"), HasSubstr("for the gpu tier (param"),
                    HasSubstr("for the cpu tier (param"), HasSubstr("(1 B) short; free"),
                    HasSubstr("or set zero_optimization.offload_"), HasSubstr("which fits")));
  limits.host = 1;
  EXPECT_THAT(refusal(setup, limits), HasSubstr("no placement fits"));
}

TEST(Refusal, BeforeTheWorkspaceIsMeasuredSaysThatItComesOnTop) {
  auto setup = setup_of({});
  Limits tiny = kPlenty;
  tiny.tiers[index(Tier::kGpu)] = 1;
  setup.workspace = 0;
  EXPECT_THAT(refusal(setup, tiny), HasSubstr("short, and by a workspace"));
  setup.workspace = 64_KiB;
  EXPECT_THAT(refusal(setup, tiny), ::testing::Not(HasSubstr("and by a workspace")));
}

TEST(Refusal, NamesTheClassesOfBytesOfThatTier) {
  schedule::Setup setup = setup_of({});
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kGpu),
              AllOf(HasSubstr("parameters "), HasSubstr("gradients "), HasSubstr("activations "),
                    HasSubstr("workspace "), ::testing::Not(HasSubstr("optimizer state"))));
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kNvme),
              AllOf(HasSubstr("(optimizer state "), ::testing::Not(HasSubstr("parameters"))));
}

TEST(Refusal, OfMoreForwardsThanCanBePlannedIsRefusedAtOnce) {
  auto setup = setup_of({});
  setup.micro_batches = 1'000'000;
  try {
    make_plan(setup, kPlenty);
    FAIL() << "five million forwards were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("lower train.gradient_accumulation_steps"));
  }
}

TEST(Refusal, NamesThePlacementThatFitsWithTheLeastTraffic) {
  Placement p{.micro_batches = 1};
  p.state = OptimizerHome::kCpu;
  EXPECT_THAT(refusal_one_byte_below(setup_of(p), Tier::kCpu),
              AllOf(HasSubstr("set zero_optimization."), HasSubstr(", which fits")));

  p.param = ParamHome::kNone;
  p.gradient = GradientHome::kNone;
  const auto setup = setup_of(p);
  Limits limits = kPlenty;
  Placement offloaded = p;
  offloaded.gradient = GradientHome::kCpu;
  limits.tiers[index(Tier::kGpu)] =
      require_minimum(setup_of(offloaded), kPlenty, 0)[index(Tier::kGpu)];
  const std::string words = refusal(setup, limits);
  EXPECT_THAT(words,
              HasSubstr("or set zero_optimization.offload_gradient.device: cpu, which fits"));
  EXPECT_THAT(words, ::testing::Not(HasSubstr("offload_param")));
}

TEST(Refusal, SuggestsWhatIsAccepted) {
  const Placement p{.param = ParamHome::kNone, .gradient = GradientHome::kNone};
  const auto setup = setup_of(p);
  Limits limits = just(require_minimum(setup, kPlenty, 0));
  limits.tiers[index(Tier::kGpu)] /= 2;
  limits.tiers[index(Tier::kCpu)] = limits.tiers[index(Tier::kNvme)] = kPlenty.tiers[0];
  const std::string words = refusal(setup, limits);
  const auto says = [&](const char* setting) { return words.find(setting) != std::string::npos; };
  auto other = setup;
  if (says("offload_param.device: cpu")) other.homes.offload_param = ParamHome::kCpu;
  if (says("offload_param.device: nvme")) other.homes.offload_param = ParamHome::kNvme;
  if (says("offload_gradient.device: cpu")) other.homes.offload_gradient = GradientHome::kCpu;
  if (says("offload_optimizer.device: cpu")) other.homes.offload_optimizer = OptimizerHome::kCpu;
  if (says("offload_activation.device: cpu")) other.homes.offload_activation = ActivationHome::kCpu;
  if (says("offload_activation.device: nvme")) {
    other.homes.offload_activation = ActivationHome::kNvme;
  }
  EXPECT_NO_THROW(require_minimum(other, limits, 0)) << words;
}

TEST(Refusal, WaitsForTheWorkspaceWhereAnotherPlacementMayFit) {
  const auto setup = setup_of({.param = ParamHome::kNone, .gradient = GradientHome::kNone});
  Limits limits = just(require_minimum(setup, kPlenty, 0));
  limits.tiers[index(Tier::kGpu)] /= 2;
  limits.tiers[index(Tier::kCpu)] = limits.tiers[index(Tier::kNvme)] = kPlenty.tiers[0];
  EXPECT_NO_THROW(plan::require_any_placement(setup, limits, 0));
  auto known = setup;
  known.workspace = limits.tiers[index(Tier::kGpu)];
  EXPECT_THAT(refusal(known, limits),
              AllOf(HasSubstr("workspace "), HasSubstr("no placement fits")));

  limits.tiers[index(Tier::kGpu)] = 64_KiB;
  EXPECT_THROW(plan::require_any_placement(setup, limits, 0), Error);
}

TEST(Refusal, OfKeepingEveryLayerSaysThatTheyNeedNotBeKept) {
  auto setup = setup_of(
      {.param = ParamHome::kNone, .gradient = GradientHome::kNone, .state = OptimizerHome::kCpu});
  auto homes = setup.homes;
  homes.recompute = schedule::Recompute::kNone;
  const auto micro_batches = setup.micro_batches;
  setup = schedule::make_setup(setup.model, homes);
  setup.micro_batches = micro_batches;
  EXPECT_EQ(make_plan(setup, kPlenty).setup.kept_layers, setup.model.decoder.layers);
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kGpu),
              HasSubstr("or set activation_checkpointing.policy: auto, which fits"));
}

TEST(Refusal, OfWhatNoPlacementFitsSaysWhatTheSmallestOneLacks) {
  auto large = setup_of({.state = OptimizerHome::kCpu});
  large.workspace = 1_GiB;
  Limits limits = kPlenty;
  limits.tiers[index(Tier::kGpu)] = 512_MiB;
  EXPECT_THAT(refusal(large, limits), AllOf(HasSubstr("lower train.train_micro_batch_size_per_gpu"),
                                            HasSubstr("no placement fits"), HasSubstr("lacks"),
                                            HasSubstr("in the gpu tier")));
  limits = kPlenty;
  limits.tiers[index(Tier::kNvme)] = limits.tiers[index(Tier::kCpu)] = 64_KiB;
  EXPECT_THAT(refusal(setup_of({}), limits), HasSubstr("no placement fits"));
}

}  // namespace
}  // namespace sluice::testing
