/// What is said when a tier is too small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <vector>

#include "tests/plan/plans.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const schedule::Setup& setup, const Limits& limits) {
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
std::string refusal_one_byte_below(const schedule::Setup& setup, Tier tier) {
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
                    HasSubstr("raise tiers.cpu.limit, tiers.nvme.limit, or "),
                    ContainsRegex("nvme .* 16\\.0 KiB\n")));
}

TEST(Refusal, OfADriveThatIsTooSmallSaysWhatGivesItMore) {
  const auto setup = setup_of({});
  Limits limits = kPlenty;
  limits.tiers[index(Tier::kNvme)] = require_minimum(setup, kPlenty, 0)[index(Tier::kNvme)] - 1;
  EXPECT_THAT(refusal(setup, limits),
              HasSubstr("raise tiers.nvme.limit, free space there, name more tiers.nvme.paths, or "
                        "set what stands below the table"));
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
              AllOf(HasSubstr("the host memory is too small for the gpu and the cpu tier"),
                    HasSubstr("(1 B) short\nfree host memory, or "),
                    ContainsRegex("\n  gpu .*\n    parameters .*\n  cpu .*\n    parameters .*"
                                  "\n  gpu \\+ cpu .* 1 B\n"),
                    HasSubstr("\n  set\n    zero_optimization.offload_"), HasSubstr("which fits")));
  limits.host = 1;
  EXPECT_THAT(refusal(setup, limits), HasSubstr("no placement fits"));
}

TEST(Refusal, BeforeTheWorkspaceIsMeasuredSaysThatItComesOnTop) {
  auto setup = setup_of({});
  Limits tiny = kPlenty;
  tiny.tiers[index(Tier::kGpu)] = 1;
  setup.workspace = 0;
  EXPECT_THAT(refusal(setup, tiny), HasSubstr("a workspace comes on top"));
  setup.workspace = 64_KiB;
  EXPECT_THAT(refusal(setup, tiny), ::testing::Not(HasSubstr("a workspace comes on top")));
}

TEST(Refusal, NamesTheClassesOfBytesOfThatTier) {
  schedule::Setup setup = setup_of({});
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kGpu),
              AllOf(HasSubstr("parameters "), HasSubstr("gradients "), HasSubstr("activations "),
                    HasSubstr("workspace "), ::testing::Not(HasSubstr("optimizer state"))));
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kNvme),
              AllOf(HasSubstr("    optimizer state "), ::testing::Not(HasSubstr("parameters"))));
}

/// What the plan says of a run that is too long to be planned.
std::string too_long(const schedule::Setup& setup, std::int64_t evaluation_batches) {
  try {
    make_plan(setup, kPlenty, evaluation_batches);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::kConfig);
    return error.what();
  }
  ADD_FAILURE() << "it was planned";
  return {};
}

TEST(Refusal, OfMoreThanCanBePlannedComesAtOnceAndSaysWhatToLower) {
  const auto most = [](const schedule::Setup& setup, std::uint64_t forwards) {
    return static_cast<std::int64_t>(forwards / setup.model->blocks.size());
  };
  auto setup = setup_of({});
  setup.micro_batches = most(setup, schedule::kMaxForwards) + 1;
  EXPECT_THAT(too_long(setup, 0), AllOf(HasSubstr("more forwards than are planned"),
                                        HasSubstr("lower train.gradient_accumulation_steps\n")));
  setup.micro_batches = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(too_long(setup, 0), HasSubstr("more forwards than are planned"));
  setup = setup_of({});
  EXPECT_THAT(too_long(setup, most(setup, schedule::kMaxEvaluationForwards) + 1),
              AllOf(HasSubstr("an evaluation has more"), HasSubstr("lower eval.batches")));
  setup = setup_of({.param = ParamHome::kNone});
  setup.micro_batches = most(setup, schedule::kMaxForwards);
  EXPECT_THAT(too_long(setup, 0), AllOf(HasSubstr("longer than is planned"),
                                        HasSubstr("raise zero_optimization.sub_group_size")));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// At most three lines of words, of 120 characters; below them rows, which are indented.
void expect_readable(const std::string& words) {
  const auto lines = lines_of(words);
  std::size_t prose = 0;
  while (prose < lines.size() && lines[prose].front() != ' ') ++prose;
  EXPECT_GE(prose, 2U) << words;
  EXPECT_LE(prose, 3U) << words;
  EXPECT_GT(lines.size(), prose) << "no numbers\n" << words;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_LE(lines[i].size(), 120U) << lines[i];
    EXPECT_EQ(lines[i].front() == ' ', i >= prose) << lines[i];
  }
}

TEST(Refusal, SaysItInThreeLinesOf120CharactersAndATable) {
  const std::vector<Placement> all = all_placements();
  for (std::size_t i = 0; i < all.size(); i += 7) {  // coprime to every axis: all values of each
    auto setup = setup_of(all[i]);
    const BytesByTier minimum = require_minimum(setup, kPlenty, 0);
    for (const Tier tier : kTiers) {
      if (minimum[index(tier)] == 0) continue;
      Limits limits = kPlenty;
      limits.tiers[index(tier)] = 1;
      expect_readable(refusal(setup, limits));
    }
    expect_readable(refusal(setup, just({0, 0, 0})));
    setup.workspace = 0;
    Limits host = kPlenty;
    host.host = 1;
    expect_readable(refusal(setup, host));
  }
  auto setup = setup_of({});
  setup.micro_batches = schedule::kMaxForwards;
  for (const std::string& words : {too_long(setup, 0), too_long(setup_of({}), 1 << 20)}) {
    for (const std::string& line : lines_of(words)) EXPECT_LE(line.size(), 120U) << line;
    EXPECT_LE(lines_of(words).size(), 4U) << words;
  }
}

/// Gradients of the whole model do not fit, those of a layer do; and the other way round block
/// inputs of all micro-batches.
TEST(Refusal, SaysWhenTheOptimizerWouldHaveToWork) {
  const auto at_the_end = setup_of({.micro_batches = 1});
  EXPECT_THAT(refusal_one_byte_below(at_the_end, Tier::kCpu),
              HasSubstr("\n  optimizer.update: arriving would fit as it is (docs/update.md)"));
  EXPECT_THAT(refusal_one_byte_below(at_the_end, Tier::kNvme), Not(HasSubstr("optimizer.update")));
  const auto arriving = setup_of({.param = ParamHome::kNone,
                                  .gradient = GradientHome::kNone,
                                  .update = schedule::Update::kArriving,
                                  .micro_batches = 64});
  EXPECT_THAT(refusal_one_byte_below(arriving, Tier::kGpu),
              AllOf(HasSubstr("\n  optimizer.update: end would fit as it is (docs/update.md)"),
                    HasSubstr("arriving all 64 micro-batches of a step go through the layers")));
}

TEST(Refusal, NamesThePlacementThatFitsWithTheLeastTraffic) {
  Placement p{.micro_batches = 1};
  p.state = OptimizerHome::kCpu;
  EXPECT_THAT(refusal_one_byte_below(setup_of(p), Tier::kCpu),
              AllOf(HasSubstr("\n  set\n    zero_optimization."), HasSubstr(", which fits")));

  p.param = ParamHome::kNone;
  p.gradient = GradientHome::kNone;
  const auto setup = setup_of(p);
  Limits limits = kPlenty;
  Placement offloaded = p;
  offloaded.gradient = GradientHome::kCpu;
  limits.tiers[index(Tier::kGpu)] =
      require_minimum(setup_of(offloaded), kPlenty, 0)[index(Tier::kGpu)];
  const std::string words = refusal(setup, limits);
  EXPECT_THAT(words, HasSubstr("\n  set\n    zero_optimization.offload_gradient.device: cpu"));
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
  // As a run file would have it that leaves the gradients' home open.
  auto homes = setup.homes;
  homes.offload_gradient = std::nullopt;
  if (says("offload_param.device: cpu")) homes.offload_param = ParamHome::kCpu;
  if (says("offload_param.device: nvme")) homes.offload_param = ParamHome::kNvme;
  if (says("offload_gradient.device: cpu")) homes.offload_gradient = GradientHome::kCpu;
  if (says("offload_gradient.device: none")) homes.offload_gradient = GradientHome::kNone;
  if (says("offload_optimizer.device: none")) homes.offload_optimizer = OptimizerHome::kNone;
  if (says("offload_optimizer.device: cpu")) homes.offload_optimizer = OptimizerHome::kCpu;
  if (says("offload_activation.device: cpu")) homes.offload_activation = ActivationHome::kCpu;
  if (says("offload_activation.device: nvme")) homes.offload_activation = ActivationHome::kNvme;
  auto other = setup;
  other.homes = schedule::make_setup(*setup.model, homes).homes;
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
  setup = schedule::make_setup(*setup.model, homes);
  setup.micro_batches = micro_batches;
  EXPECT_EQ(make_plan(setup, kPlenty).setup.kept_layers, setup.model->decoder.layers);
  EXPECT_THAT(refusal_one_byte_below(setup, Tier::kGpu),
              HasSubstr("\n  set\n    activation_checkpointing.policy: auto"));
}

TEST(Refusal, OfWhatNoPlacementFitsSaysWhatTheSmallestOneLacks) {
  auto large = setup_of({.state = OptimizerHome::kCpu});
  large.workspace = 1_GiB;
  Limits limits = kPlenty;
  limits.tiers[index(Tier::kGpu)] = 512_MiB;
  EXPECT_THAT(refusal(large, limits), AllOf(HasSubstr("lower train.train_micro_batch_size_per_gpu"),
                                            HasSubstr("no placement fits"), HasSubstr("lacks"),
                                            HasSubstr("in the gpu tier")));

  auto arriving = setup_of({.state = OptimizerHome::kCpu, .update = schedule::Update::kArriving});
  arriving.workspace = 1_GiB;
  EXPECT_THAT(refusal(arriving, limits), HasSubstr("or lower train.gradient_accumulation_steps, "));

  // All that the placement with everything on nvme needs, but for 8 KiB.
  limits = just(require_minimum(setup_of({}), kPlenty, 0));
  limits.tiers[index(Tier::kCpu)] -= 8_KiB;
  const auto resident = setup_of({.param = ParamHome::kNone, .gradient = GradientHome::kNone});
  EXPECT_THAT(refusal(resident, limits), EndsWith("\n  lacks\n    8.0 KiB in the cpu tier"));

  limits = kPlenty;
  limits.tiers[index(Tier::kNvme)] = limits.tiers[index(Tier::kCpu)] = 64_KiB;
  EXPECT_THAT(refusal(setup_of({}), limits), HasSubstr("no placement fits"));
  const auto least = require_minimum(setup_of({}), kPlenty, 0);
  limits.tiers[index(Tier::kCpu)] = least[index(Tier::kCpu)];
  limits.tiers[index(Tier::kGpu)] = least[index(Tier::kGpu)];
  EXPECT_THAT(
      refusal(setup_of({}), limits),
      HasSubstr("raise tiers.nvme.limit, or free space there or name more tiers.nvme.paths\n"
                "no placement fits"));
}

}  // namespace
}  // namespace sluice::testing
