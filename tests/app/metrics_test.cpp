/// Every number of metrics.jsonl (docs/metrics.md) against something that the run did not compute.

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <tuple>
#include <utility>

#include "tests/app/records.h"

namespace sluice::app {
namespace {

using Metrics = RecordsTest;
using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;

/// The run file's model, padded: each of its five segments (token embedding, positions, two layers,
/// final norm) is smaller than one grain of 4096 elements.
constexpr std::int64_t kPadded = 5 * 4096;
constexpr std::int64_t kStateBytes = 12 * kPadded;

TEST_F(Metrics, StepsAndTokensAreCounted) {
  const Records records = run("r", "train.steps=3 train.gradient_accumulation_steps=4");
  EXPECT_EQ(column(records, "step"), (std::vector<double>{1, 2, 3}));
  EXPECT_THAT(column(records, "tokens"), Each(4 * kBatch * kSeqLen));
}

/// Fresh weights know nothing: the logits of 50 tokens have a spread of 0.02 x sqrt(16) = 0.08 (the
/// last norm's output has 16 elements of size 1), which moves the mean loss off ln 50 by 0.003 and
/// the mean of 32 targets by 0.08 / sqrt(32) = 0.014; 0.1 is seven of those.
TEST_F(Metrics, TheFirstLossIsThatOfGuessing) {
  for (const char* micros : {"1", "4"}) {
    const Records records =
        run(std::string("r") + micros,
            std::string("train.steps=1 train.gradient_accumulation_steps=") + micros);
    EXPECT_NEAR(records.front().at("loss").get<double>(), std::log(50.0), 0.1);
  }
}

/// With weights that stay as they are, evaluating the training sample gives its training loss. Both
/// are a sum of 16 fp32 terms near 4; its order may differ.
TEST_F(Metrics, TheLossOfAnEvaluationIsTheLossOfItsSamples) {
  const std::string sample = cut_to_sample(5);
  const Records records =
      run("r",
          "optimizer.lr=0 train.train_micro_batch_size_per_gpu=1 train.steps=4 eval.every=3 "
          "data.train=" +
              sample + " data.valid=" + sample);
  ASSERT_EQ(records.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(records[i].contains("valid_loss"), i >= 2) << "every third step and the last";
    if (i < 2) continue;
    EXPECT_NEAR(records[i].at("valid_loss").get<double>(), records[i].at("loss").get<double>(),
                16 * 4 * 6e-8);
  }
}

TEST_F(Metrics, TheClipFactorFollowsFromTheNorm) {
  const Records records = run("r", "train.steps=4 train.gradient_clipping=0.5");
  for (const auto& record : records) {
    const double norm = record.at("gnorm").get<double>();
    ASSERT_GT(norm, 0.5) << "nothing was clipped";
    EXPECT_EQ(record.at("clip").get<float>(), static_cast<float>(0.5 / (norm + 1e-6)));
    EXPECT_FALSE(record.at("skipped").get<bool>());
  }
  EXPECT_THAT(column(run("off", "train.gradient_clipping=null"), "clip"), Each(1.0));
}

TEST_F(Metrics, TheLearningRateIsTheSchedulers) {
  const Records records = run("r",
                              "train.steps=6 optimizer.lr=0.004 scheduler.type=constant "
                              "scheduler.warmup_steps=4");
  EXPECT_EQ(column(records, "lr"), (std::vector{0.001, 0.002, 0.003, 0.004, 0.004, 0.004}));
}

/// Steps overlap, but their times are laid end to end, inside the time that the program ran.
TEST_F(Metrics, TheSecondsOfAllStepsAreNoMoreThanTheProgramTook) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = column(run("r", "train.steps=40"), "seconds");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  double sum = 0;
  for (const double s : seconds) {
    EXPECT_GT(s, 0);
    sum += s;
  }
  EXPECT_LT(sum, took.count());
}

/// Each share is rounded to 4 digits, and what rounds to nothing is left out: 5e-5 for each of the
/// at most 8 lanes and 30 pools and reasons that a lane may wait for.
TEST_F(Metrics, TheSharesOfEachLaneAddUpToOne) {
  for (const auto& record : run("r", "train.steps=6 tiers.gpu.unified=false")) {
    double most = 0;
    ASSERT_GE(record.at("lanes").size(), 5U);
    for (const auto& [lane, shares] : record.at("lanes").items()) {
      double sum = shares.at("busy").get<double>();
      most = std::max(most, sum);
      if (shares.contains("idle")) {
        for (const auto& [reason, share] : shares["idle"].items()) {
          EXPECT_THAT(share.get<double>(), AllOf(Ge(0.0), Le(1.0))) << lane << ' ' << reason;
          sum += share.get<double>();
        }
      }
      EXPECT_NEAR(sum, 1.0, 40 * 5e-5) << lane << ' ' << shares;
    }
    const std::string bound = record.at("bound").get<std::string>();
    EXPECT_EQ(record.at("lanes").at(bound).at("busy").get<double>(), most);
    EXPECT_NEAR(record.at("bound_share").get<double>(), most, 1e-4);
  }
}

/// "simulated step: 0.00123 s, bound nvme-write 87%": three digits, and whole percents.
TEST_F(Metrics, TheForecastIsThatOfThePlan) {
  const Records records = run("r", "train.steps=4 aio.verify=true");
  const nlohmann::json& forecast = records.front().at("forecast");
  const double seconds = forecast.at("seconds").get<double>();
  double most = -1;
  for (const auto& [lane, shares] : forecast.at("lanes").items()) {
    const double busy = shares.at("busy").get<double>();
    EXPECT_THAT(busy, AllOf(Ge(0.0), Le(1.0))) << lane;
    EXPECT_TRUE(records.front().at("lanes").contains(lane));
    most = std::max(most, busy);
  }
  const std::string plan = text_of("runs/r/train.log");
  const std::string line = plan.substr(plan.find("simulated step: "));
  double told_s = 0, told_share = 0;
  std::array<char, 16> bound{};
  ASSERT_EQ(std::sscanf(line.c_str(), "simulated step: %lf s, bound %15s %lf%%", &told_s,
                        bound.data(), &told_share),
            3);
  EXPECT_NEAR(seconds, told_s, told_s * 0.006);
  EXPECT_EQ(forecast.at("lanes").at(bound.data()).at("busy").get<double>(), most);
  EXPECT_NEAR(most * 100, told_share, 0.51);
  for (const auto& record : records) EXPECT_EQ(record.at("forecast"), forecast);
  for (const auto& record : run("serial", "train.steps=2 execution=serial")) {
    double all = 0;  // one lane after the other, each rounded
    for (const auto& [lane, shares] : record.at("forecast").at("lanes").items()) {
      all += shares.at("busy").get<double>();
    }
    EXPECT_NEAR(all, 1, 1e-3);
  }
}

/// Each step reads and writes the whole state. Reads for the next step may begin in this one's time
/// (but not when run op by op), and what initialisation wrote is no step's.
TEST_F(Metrics, EachStepMovesTheStateThroughNvmeOnce) {
  constexpr int kSteps = 5;
  for (const std::string execution : {"serial", "overlapped"}) {
    const Records records = run(execution, "train.steps=5 execution=" + execution);
    ASSERT_EQ(records.size(), std::size_t{kSteps});
    for (const char* key : {"nvme_read_bytes", "nvme_write_bytes"}) {
      const std::vector<double> bytes = column(records, key);
      double sum = 0;
      for (const double each : bytes) sum += each;
      EXPECT_EQ(sum, kSteps * kStateBytes) << key << ' ' << execution;
      if (execution == "serial") {
        EXPECT_THAT(bytes, Each(kStateBytes)) << key;
      }
    }
    EXPECT_EQ(column(records, "nvme_write_total").back(), (1 + kSteps) * kStateBytes);
  }
  const Records none = run("none", "zero_optimization.offload_optimizer.device=cpu");
  EXPECT_THAT(column(none, "nvme_read_bytes"), Each(0));
  EXPECT_THAT(column(none, "nvme_write_bytes"), Each(0));
}

/// A block's input is 2 samples of 16 tokens of 16 numbers in fp32; the two layers' go to the host
/// and come back. Steps overlap here, too: what the last one moves is complete when it ends.
TEST_F(Metrics, EachInputOfALayerIsCopiedToTheHostAndBackOnce) {
  constexpr double kPage = 4096;  // the 2,048 bytes of one take as much
  static_assert(kBatch * kSeqLen * 16 * 4 <= kPage);
  constexpr double kInputs = 2 * kPage;
  const std::string apart =
      "train.steps=3 tiers.gpu.unified=false activation_checkpointing.policy=every_layer ";
  const Records there = run("there", apart + "zero_optimization.offload_activation.device=none");
  const Records here = run("here", apart + "zero_optimization.offload_activation.device=cpu");
  for (const char* key : {"h2d_bytes", "d2h_bytes"}) {
    double more = 0;
    for (std::size_t step = 0; step < 3; ++step) {
      more += here[step].at(key).get<double>() - there[step].at(key).get<double>();
    }
    EXPECT_EQ(more, 3 * kInputs) << key;
  }
  const Records unified = run("unified", "train.steps=2");
  for (const char* key : {"h2d_bytes", "d2h_bytes"}) EXPECT_THAT(column(unified, key), Each(0));
}

/// "cpu  tier: serial minimum 260.0 KiB, planned 452.0 KiB of 256.0 MiB", and the last line's sums.
/// The plan is the run's own: another one measures the machine again, and may plan differently.
TEST_F(Metrics, TheTiersHoldWhatTheRunPlanned) {
  const Records records = run("r", "");
  const std::string plan = text_of("runs/r/train.log");
  const auto& memory = records.back().at("memory");
  EXPECT_FALSE(records.front().contains("memory")) << "only the last record has it";
  for (const std::string tier : {"gpu", "cpu", "nvme"}) {
    std::int64_t reserved = 0;
    for (const auto& [name, bytes] : memory.at(tier).items()) {
      reserved += bytes.at("reserved").get<std::int64_t>();
      EXPECT_GT(bytes.at("peak").get<std::int64_t>(), 0) << tier << ' ' << name;
      EXPECT_LE(bytes.at("peak"), bytes.at("reserved")) << tier << ' ' << name;
    }
    ASSERT_EQ(reserved % 1024, 0);
    EXPECT_THAT(plan, testing::ContainsRegex(tier + " +tier: [^\n]*planned " +
                                             std::to_string(reserved / 1024) + "\\.0 KiB of"));
    if (tier == "nvme") {
      EXPECT_EQ(reserved, kStateBytes);
      EXPECT_EQ(memory.at(tier).at("optimizer state").at("peak"), kStateBytes);
    } else {
      for (const double bytes : column(records, tier + "_bytes")) EXPECT_EQ(bytes, reserved);
    }
  }
}

/// All pages of the tiers are touched, and the system has its own count of the program's most. Its
/// counters are kept per CPU and lag behind by some pages each, 1/8 is far more than all of them.
TEST_F(Metrics, ThePeakOfTheProcessHoldsTheTiersAndIsWhatTheSystemSaw) {
  const Records records = run("r", "");
  rusage children{};
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &children), 0);
  const auto peak = records.back().at("resident_peak").get<std::int64_t>();
  EXPECT_LE(peak, children.ru_maxrss * 1024 / 8 * 9);
  EXPECT_GE(peak, records.back().at("cpu_bytes").get<std::int64_t>() +
                      records.back().at("gpu_bytes").get<std::int64_t>());
  EXPECT_FALSE(records.front().contains("resident_peak"));
  EXPECT_TRUE(records.back().at("nvme").get<std::string>().starts_with("io_uring") ||
              records.back().at("nvme").get<std::string>().starts_with("libaio") ||
              records.back().at("nvme").get<std::string>().starts_with("threads"));
  EXPECT_FALSE(records.front().contains("nvme"));
}

/// AdamW with lr x weight_decay of 1e6 makes the weights a million times larger in each step, until
/// fp32 ends.
constexpr const char* kExplodes =
    "train.steps=30 optimizer.lr=1000 optimizer.weight_decay=1000 scheduler.warmup_steps=0 ";

TEST_F(Metrics, SkippedStepsAreToldAndTooManyEndTheRun) {
  const Ending ending = train(std::string(kExplodes) + "train.max_skips=3");
  expect_refused(ending, kNonFinite, {"3 skipped steps in a row", "train.max_skips is 3"});
  Records records;
  std::istringstream lines(text_of("runs/run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) records.push_back(nlohmann::json::parse(line));
  ASSERT_GE(records.size(), 2U);
  EXPECT_FALSE(records.front().at("skipped").get<bool>());
  EXPECT_TRUE(records.back().at("skipped").get<bool>());
  EXPECT_TRUE(records.back().at("loss").is_null() || records.back().at("gnorm").is_null());
}

TEST_F(Metrics, ALossThatIsNoNumberStopsARunThatAsksForIt) {
  expect_refused(train(std::string(kExplodes) + "train.on_nonfinite=stop"), kNonFinite,
                 {"train.on_nonfinite"});
}

}  // namespace
}  // namespace sluice::app
