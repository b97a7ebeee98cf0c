#include "engine/bench/summary.h"

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

Measured run(Bytes block, unsigned depth, Traffic traffic, double rate) {
  Measured measured;
  measured.point = {nvme::Engine::kIoUring, block, depth, traffic};
  (traffic == Traffic::kWrite ? measured.write_rate : measured.read_rate) = rate;
  return measured;
}

Summary summary(Bytes block, unsigned depth, double rate, double spread, int repetitions = 3) {
  Summary summary;
  summary.point = {nvme::Engine::kIoUring, block, depth, Traffic::kMixed};
  summary.read_rate = summary.write_rate = rate / 2;
  summary.spread = spread;
  summary.repetitions = repetitions;
  return summary;
}

TEST(Summaries, MedianIsTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(Summaries, OfAPointAreOfAllItsRunsInTheirOrder) {
  std::vector<Measured> runs = {
      run(1_MiB, 32, Traffic::kRead, 100), run(1_MiB, 16, Traffic::kRead, 7),
      run(1_MiB, 32, Traffic::kWrite, 5), run(1_MiB, 32, Traffic::kRead, 140),
      run(1_MiB, 32, Traffic::kRead, 120)};
  runs[0].read_latency.p99_s = 3;
  runs[3].read_latency.p99_s = 1;
  runs[4].read_latency.p99_s = 2;
  runs[3].cpu_s_per_gb = 0.3;
  const std::vector<Summary> summaries = summarize(runs);
  ASSERT_EQ(summaries.size(), 3U);
  EXPECT_EQ(summaries[0].point, runs[0].point);
  EXPECT_EQ(summaries[0].repetitions, 3);
  EXPECT_DOUBLE_EQ(summaries[0].read_rate, 120);
  EXPECT_DOUBLE_EQ(summaries[0].spread, 40. / 120);
  EXPECT_DOUBLE_EQ(summaries[0].drift, 120. / 100 - 1);
  EXPECT_DOUBLE_EQ(summaries[0].read_latency.p99_s, 2);
  EXPECT_DOUBLE_EQ(summaries[0].cpu_s_per_gb, 0);
  EXPECT_EQ(summaries[1].repetitions, 1);
  EXPECT_EQ(summaries[1].spread, 0);
  EXPECT_DOUBLE_EQ(summaries[2].write_rate, 5);
}

TEST(Summaries, TheFastestWinsWhereNothingElseExplainsIt) {
  const std::vector<Summary> all = {summary(1_MiB, 8, 90, 0.02), summary(4_MiB, 64, 100, 0.02)};
  ASSERT_NE(winner(all, Traffic::kMixed), nullptr);
  EXPECT_EQ(winner(all, Traffic::kMixed)->point.depth, 64U);
  EXPECT_EQ(winner(all, Traffic::kRead), nullptr);
  EXPECT_EQ(winner({}, Traffic::kMixed), nullptr);
}

TEST(Summaries, OfThoseWithinTheSpreadTheLeastInFlightWins) {
  const std::vector<Summary> all = {summary(4_MiB, 64, 100, 0.05), summary(1_MiB, 64, 98, 0.05),
                                    summary(1_MiB, 16, 97.9, 0.01), summary(128_KiB, 1, 50, 0.05)};
  EXPECT_EQ(winner(all, Traffic::kMixed)->point.depth, 16U);
}

/// What is in flight is waited for by whatever is asked for next.
TEST(Summaries, OfThoseAsFastTheLeastInFlightWins) {
  const std::vector<Summary> all = {summary(1_MiB, 8, 96, 0), summary(4_MiB, 64, 100, 0)};
  EXPECT_EQ(winner(all, Traffic::kMixed)->point.depth, 8U);
}

TEST(Summaries, APointMeasuredOnceDoesNotWinAgainstFinalists) {
  const std::vector<Summary> all = {summary(4_MiB, 64, 200, 0, 1), summary(1_MiB, 64, 98, 0.05)};
  EXPECT_EQ(winner(all, Traffic::kMixed)->point.block, 1_MiB);
}

TEST(Summaries, OtherTrafficMeasuredMoreOftenIsNoReason) {
  std::vector<Summary> all = {summary(4_MiB, 64, 200, 0, 2), summary(1_MiB, 64, 98, 0.05, 5)};
  all[1].point.traffic = Traffic::kRead;
  ASSERT_NE(winner(all, Traffic::kMixed), nullptr);
  EXPECT_EQ(winner(all, Traffic::kMixed)->point.block, 4_MiB);
}

TEST(Summaries, FastestIsOfItsTrafficAndEngine) {
  std::vector<Summary> all = {summary(4_MiB, 64, 200, 0), summary(1_MiB, 64, 98, 0)};
  all[1].point.engine = nvme::Engine::kThreads;
  EXPECT_EQ(fastest(all, Traffic::kMixed), all.data());
  EXPECT_EQ(fastest(all, Traffic::kMixed, nvme::Engine::kThreads), &all[1]);
  EXPECT_EQ(fastest(all, Traffic::kMixed, nvme::Engine::kLibaio), nullptr);
}

TEST(Summaries, FlatAreFiveRatesAlike) {
  EXPECT_FALSE(is_flat({}));
  EXPECT_FALSE(is_flat({1, 1, 1, 1}));
  EXPECT_TRUE(is_flat({1, 1, 1, 1, 1}));
  EXPECT_TRUE(is_flat({9, 1, 1.04, 1, 1.02, 1}));
  EXPECT_FALSE(is_flat({1, 1, 1.06, 1, 1}));
}

}  // namespace
}  // namespace sluice::bench
