#include "engine/bench/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/bench/summary.h"

namespace sluice::bench {
namespace {

DriveResult one_result() {
  Measured run;
  run.point = {nvme::Engine::kLibaio, 4_MiB, 16, Traffic::kMixed};
  run.seconds = 2;
  run.read_bytes = 6'000'000'000;
  run.written_bytes = 2'000'000'000;
  run.read_rate = 3e9;
  run.write_rate = 1e9;
  run.read_latency = {1e-3, 2e-3, 3e-3};
  run.cpu_s_per_gb = 0.05;
  run.verified_bytes = 4096;
  DriveResult result;
  result.name = "/mnt/a";
  result.means.context.path = "/mnt/a";
  result.means.context.cores = 2;
  result.means.context.planned_writes = 77;
  result.measured = {run, run};
  result.measured[1].repetition = 1;
  result.summaries = summarize(result.measured);
  result.winner = result.summaries.front();
  result.steady = Steady{{2e9, 1e9}, true};
  result.whole = true;
  return result;
}

TEST(Json, HasTheShapeOfGoogleBenchmark) {
  const auto all = nlohmann::json::parse(to_json({one_result()}));
  EXPECT_EQ(all.at("context").at("num_cpus"), 2);
  EXPECT_EQ(all.at("context").at("planned_write_bytes"), 77);
  const auto& rows = all.at("benchmarks");
  ASSERT_EQ(rows.size(), 3U);
  const auto& row = rows[1];
  EXPECT_EQ(row.at("name"), "nvme//mnt/a/mixed/libaio/block:4194304/depth:16");
  EXPECT_EQ(row.at("run_type"), "iteration");
  EXPECT_EQ(row.at("repetition_index"), 1);
  EXPECT_EQ(row.at("time_unit"), "s");
  EXPECT_EQ(row.at("seconds"), 2);
  EXPECT_DOUBLE_EQ(row.at("real_time"), 0.25);
  EXPECT_DOUBLE_EQ(row.at("cpu_time"), 0.05);
  EXPECT_DOUBLE_EQ(row.at("bytes_per_second"), 4e9);
  EXPECT_DOUBLE_EQ(row.at("read_p99_us"), 2000);
  EXPECT_FALSE(row.contains("write_p99_us"));
  EXPECT_EQ(row.at("verified_bytes"), 4096);
  EXPECT_EQ(rows[2].at("run_type"), "aggregate");
  EXPECT_EQ(rows[2].at("aggregate_name"), "median");
  EXPECT_EQ(rows[2].at("repetitions"), 2);
  EXPECT_DOUBLE_EQ(rows[2].at("real_time"), 0.25);
  EXPECT_DOUBLE_EQ(rows[2].at("cpu_time"), 0.05);
}

TEST(Json, HasEachTargetWithItsWinner) {
  DriveResult other = one_result();
  other.name = "caf\xe9";  // no UTF-8
  other.winner.reset();
  other.steady.reset();
  const auto all = nlohmann::json::parse(to_json({one_result(), other}));
  const auto& targets = all.at("context").at("targets");
  ASSERT_EQ(targets.size(), 2U);
  EXPECT_EQ(targets[0].at("winner").at("engine"), "libaio");
  EXPECT_EQ(targets[0].at("winner").at("block"), 4'194'304);
  EXPECT_EQ(targets[0].at("steady").at("flat"), true);
  EXPECT_FALSE(targets[1].contains("winner"));
  EXPECT_EQ(all.at("benchmarks").size(), 6U);
}

TEST(Json, OfNothingIsStillWhole) {
  const auto all = nlohmann::json::parse(to_json({}));
  EXPECT_TRUE(all.at("benchmarks").empty());
}

}  // namespace
}  // namespace sluice::bench
