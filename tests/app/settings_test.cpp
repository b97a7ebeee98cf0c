/// What every placement shares, so that no comparison of placements can see it: each of these
/// settings of the run file must change something that has an expectation of its own.

#include <algorithm>

#include "engine/data/sampler.h"
#include "tests/app/records.h"

namespace sluice::app {
namespace {

using Settings = RecordsTest;
using testing::Each;
using testing::Ne;

TEST_F(Settings, AResolvedFileGivesTheSameBitsAgain) {
  const Records first =
      run("first", "seed=7 train.steps=4 compute.threads=auto train.gradient_accumulation_steps=2");
  const Records again =
      started("again", "runs/first/config.resolved.yaml name=again output_dir=runs/again");
  ASSERT_EQ(first.size(), 4U);
  for (const char* key : {"loss", "gnorm", "lr", "clip", "tokens"}) {
    EXPECT_EQ(column(first, key), column(again, key)) << key;
  }
  EXPECT_EQ(weights("first"), weights("again"));
}

/// The learning rate is 0, so the final weights are the first ones.
TEST_F(Settings, TheSeedDecidesTheFirstWeights) {
  const std::string still = " optimizer.lr=0 data.shuffle=false";
  run("seven", "seed=7" + still);
  run("eight", "seed=8" + still);
  run("seven-again", "seed=7" + still);
  EXPECT_EQ(weights("seven"), weights("seven-again"));
  EXPECT_NE(weights("seven"), weights("eight"));
}

/// Which sample came first is seen from outside: a run that has no other begins with the same loss.
TEST_F(Settings, TheSeedAndShuffleDecideWhichSampleComesFirst) {
  const std::string one = " train.train_micro_batch_size_per_gpu=1 train.steps=1";
  const auto begins_with = [&](std::int64_t k, const std::string& seed, const std::string& order) {
    fs::remove_all(folder_ / "runs");
    const Records whole = run("whole", seed + order + one);
    const Records cut = run("cut", seed + one + " data.train=" + cut_to_sample(k));
    EXPECT_EQ(column(whole, "loss"), column(cut, "loss")) << seed << order;
    EXPECT_EQ(weights("whole"), weights("cut")) << seed << order;
  };
  const auto first = [](std::uint64_t seed) {
    return data::Sampler(kSamples, seed, data::Order::kShuffled).at(0);
  };
  ASSERT_THAT((std::vector{first(7), first(8)}), Each(Ne(0)));
  ASSERT_NE(first(7), first(8));
  begins_with(0, "seed=7", " data.shuffle=false");
  begins_with(first(7), "seed=7", " data.shuffle=true");
  begins_with(first(8), "seed=8", " data.shuffle=true");
}

TEST_F(Settings, EpochsAndTokensAndNothingDecideTheNumberOfSteps) {
  const auto steps = [&](const std::string& name, const std::string& length) {
    return static_cast<std::int64_t>(run(name, "train.steps=null " + length).size());
  };
  EXPECT_EQ(steps("none", ""), kSamples / kBatch);
  EXPECT_EQ(steps("epochs", "train.epochs=3"), 3 * kSamples / kBatch);
  EXPECT_EQ(steps("tokens", "train.tokens=200"), 200 / (kBatch * kSeqLen));
  EXPECT_EQ(static_cast<std::int64_t>(run("steps", "train.steps=5").size()), 5);
}

/// An epoch visits each sample once: with weights that stay as they are, the mean loss is the same
/// in every order but for rounding, and in the second epoch too. A mean of 20 numbers near 4 in
/// double precision is off by less than 1e-13; a step's own loss is one sum of 32 fp32 numbers,
/// grouped by its two samples: each is off by 2^-24 of 4 at most, per addition.
TEST_F(Settings, EachEpochVisitsEverySampleOnce) {
  const auto mean = [](const std::vector<double>& losses, std::size_t from, std::size_t n) {
    double sum = 0;
    for (std::size_t i = from; i < from + n; ++i) sum += losses[i];
    return sum / static_cast<double>(n);
  };
  const std::string still = " optimizer.lr=0 train.steps=null train.epochs=2";
  const auto sequential = column(run("row", "data.shuffle=false" + still), "loss");
  const auto shuffled = column(run("shuffled", "data.shuffle=true" + still), "loss");
  const std::size_t epoch = kSamples / kBatch;
  ASSERT_EQ(shuffled.size(), 2 * epoch);
  const double rounding = 32 * 4 * 6e-8;
  EXPECT_NEAR(mean(shuffled, 0, epoch), mean(sequential, 0, epoch), rounding);
  EXPECT_NEAR(mean(shuffled, epoch, epoch), mean(sequential, 0, epoch), rounding);
  EXPECT_TRUE(
      std::equal(sequential.begin(), sequential.begin() + epoch, sequential.begin() + epoch));
  EXPECT_FALSE(std::equal(shuffled.begin(), shuffled.begin() + epoch, shuffled.begin() + epoch));
}

/// They differ in where weight decay is added, and in nothing else.
TEST_F(Settings, AdamAndAdamWDifferOnlyWhereThereIsWeightDecay) {
  const auto final = [&](const std::string& type, const std::string& decay) {
    run(type + decay, "train.steps=3 optimizer.type=" + type + " optimizer.weight_decay=" + decay);
    return weights(type + decay);
  };
  EXPECT_EQ(final("adam", "0"), final("adamw", "0"));
  EXPECT_NE(final("adam", "0.1"), final("adamw", "0.1"));
}

/// As `sluice bench nvme --write-config` leaves them.
TEST_F(Settings, WhatABenchFoundBestIsUsedAndSaid) {
  rewrite(
      "tiers:\n",
      "# measured by sluice bench nvme /mnt/nvme0\naio:\n  engine: threads\n  block_size: 64KiB\n"
      "  queue_depth: 4\n  threads: 3\ntiers:\n");
  const Records records = run("best", "");
  ASSERT_FALSE(records.empty());
  const auto used = records.back().at("nvme").get<std::string>();
  EXPECT_THAT(used, testing::StartsWith("threads, 3 x 64.0 KiB")) << used;
  EXPECT_THAT(text_of("runs/best/train.log"), testing::HasSubstr(used.substr(0, 20)));
}

/// By what a run's own steps were counted to write; overlapped, part of it is counted in a
/// neighbour.
TEST_F(Settings, ADryRunSaysAfterHowManyStepsTheDrivesAreWornOut) {
  const double written = column(run("counted", "execution=serial"), "nvme_write_bytes").back();
  const Ending dry = train("--dry-run tiers.nvme.endurance=3GB");
  EXPECT_EQ(dry.code, 0) << dry.said;
  EXPECT_THAT(dry.said,
              testing::HasSubstr("drives: 3GB of writes are used up after " +
                                 std::to_string(static_cast<int>(3e9 / written)) + " steps, "));
}

/// Serial: each op begins when the one before has ended. The trace has microseconds to 3 digits.
TEST_F(Settings, ASerialRunDoesOneThingAtATime) {
  run("serial", "execution=serial train.steps=3 profile.steps=1-3");
  const auto trace = nlohmann::json::parse(text_of("runs/serial/trace.json"));
  std::vector<std::pair<double, double>> spans;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts").get<double>();
    spans.emplace_back(begin, begin + event.at("dur").get<double>());
  }
  std::ranges::sort(spans);
  ASSERT_GT(spans.size(), 30U);
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_GE(spans[i].first + 0.002, spans[i - 1].second) << "op " << i;
  }
}

/// The same samples in the same step. Sums of fp32 numbers in another order differ in their last
/// bits; a gradient that were the mean of a micro-batch would be three times as large.
TEST_F(Settings, HowABatchIsCutIntoMicroBatchesDoesNotChangeItsGradient) {
  const auto first_norm = [&](const std::string& size, const std::string& count) {
    return column(run(size + "x" + count, "train.steps=1 train.train_micro_batch_size_per_gpu=" +
                                              size + " train.gradient_accumulation_steps=" + count),
                  "gnorm")
        .front();
  };
  const double whole = first_norm("6", "1");
  EXPECT_GT(whole, 0);
  EXPECT_NEAR(first_norm("2", "3"), whole, 0.01 * whole);
}

TEST_F(Settings, TheFinalWeightsHaveTheDtypeThatIsAskedFor) {
  for (const std::string dtype : {"fp32", "bf16"}) {
    run(dtype, "train.steps=0 checkpoint.final_dtype=" + dtype);
    const bool wide = weights(dtype).find(R"("dtype":"F32")") != std::string::npos;
    const bool narrow = weights(dtype).find(R"("dtype":"BF16")") != std::string::npos;
    EXPECT_EQ(wide, dtype == "fp32");
    EXPECT_EQ(narrow, dtype == "bf16");
  }
}

TEST_F(Settings, EveryStepThatIsNamedIsLoggedAndTheLastOne) {
  run("r", "train.steps=7 logging.log_every=3");
  const std::string log = text_of("runs/r/train.log");
  for (int step = 1; step <= 7; ++step) {
    const bool told = log.find("step " + std::to_string(step) + "/7") != std::string::npos;
    EXPECT_EQ(told, step == 3 || step == 6 || step == 7) << log;
  }
}

}  // namespace
}  // namespace sluice::app
