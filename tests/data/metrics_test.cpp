#include "engine/data/metrics.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/data/folder.h"
#include "tests/support/errors.h"
#include "tests/support/file_size_limit.h"

namespace sluice::data {
namespace {

using test::expect_error;

StepRecord record(std::int64_t step) {
  StepRecord made;
  made.step = step;
  made.steps = 1000;
  made.loss = 2.5;
  made.gnorm = 0.75;
  made.lr = 3e-4;
  made.seconds = 1.5;
  made.tokens = 4096;
  made.targets = 1500;
  made.bound = "nvme-write";
  made.bound_share = 0.92;
  made.cpu_bytes = 49_GiB;
  made.h2d_bytes = 77;
  made.d2h_bytes = 66;
  made.nvme_read_bytes = 123456789012;
  return made;
}

class Metrics : public Folder {
 protected:
  std::string file() const { return path("metrics.jsonl"); }
  std::string content() const { return read("metrics.jsonl"); }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    std::stringstream text(content());
    for (std::string line; std::getline(text, line);) {
      found.push_back(nlohmann::json::parse(line)["step"]);
    }
    return found;
  }
  using Steps = std::vector<std::int64_t>;
};

TEST(MetricsJson, HasEveryFieldAndOneLine) {
  StepRecord full = record(120);
  full.valid_loss = 2.25;
  full.skipped = true;
  full.loss_scale = 2048;
  full.largest_gnorm = 0.5;
  full.delayed = true;
  full.flops = 1e18;
  full.mfu = 0.43211;
  EXPECT_EQ(
      to_json(full),
      R"({"step":120,"loss":2.5,"gnorm":0.75,"lr":0.0003,"seconds":1.5,"tokens":4096,)"
      R"("targets":1500,"clip":1.0,"skipped":true,"flops":1e+18,"bound":"nvme-write","bound_share":0.92,)"
      R"("cpu_bytes":52613349376,"gpu_bytes":0,"h2d_bytes":77,"d2h_bytes":66,"nvme_read_bytes":123456789012,)"
      R"("nvme_write_bytes":0,"nvme_write_total":0,"mfu":0.4321,"largest_gnorm":0.5,"delayed":true,"loss_scale":2048,"valid_loss":2.25})");
  for (const char* absent : {"valid_loss", "loss_scale", "mfu", "delayed", "forecast"}) {
    EXPECT_FALSE(nlohmann::json::parse(to_json(record(1))).contains(absent));
  }
}

TEST(MetricsJson, HasTheTimeOfEachLaneAndAtTheLastStepTheMemory) {
  StepRecord last = record(3);
  last.lanes = {{"compute", 1.0 / 3, {{"h2d", 0.5}, {"start", 1.0 / 6}, {"cpu", 1e-7}}},
                {"data", 1, {}}};
  last.memory = {
      {"gpu", "parameters", 100, 60}, {"gpu", "gradients", 50, 50}, {"cpu", "state", 7, 7}};
  last.forecast = Forecast{0.75, {{"compute", 2.0 / 3, {}}, {"data", 0, {}}}};
  last.resident_peak = 1000;
  last.nvme = "threads";
  const auto json = nlohmann::json::parse(to_json(last));
  EXPECT_EQ(json["lanes"].dump(),
            R"({"compute":{"busy":0.3333,"idle":{"h2d":0.5,"start":0.1667}},"data":{"busy":1.0}})");
  EXPECT_EQ(
      json["memory"].dump(),
      R"({"cpu":{"state":{"peak":7,"reserved":7}},)"
      R"("gpu":{"gradients":{"peak":50,"reserved":50},"parameters":{"peak":60,"reserved":100}}})");
  EXPECT_EQ(json["forecast"].dump(),
            R"({"lanes":{"compute":{"busy":0.6667},"data":{"busy":0.0}},"seconds":0.75})");
  EXPECT_EQ(json["resident_peak"], 1000);
  EXPECT_EQ(json["nvme"], "threads");
  EXPECT_FALSE(nlohmann::json::parse(to_json(record(1))).contains("memory"));
}

TEST(MetricsJson, WhatIsNotFiniteIsNull) {
  StepRecord bad = record(1);
  bad.loss = std::numeric_limits<double>::quiet_NaN();
  bad.gnorm = std::numeric_limits<double>::infinity();
  bad.valid_loss = -std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(to_json(bad));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["gnorm"].is_null());
  EXPECT_TRUE(json["valid_loss"].is_null());
}

TEST(MetricsJson, NumbersKeepEveryBit) {
  StepRecord third = record(1);
  third.loss = 1.0 / 3.0;
  EXPECT_EQ(nlohmann::json::parse(to_json(third))["loss"].get<double>(), 1.0 / 3.0);
}

TEST_F(Metrics, EveryLineIsInTheFileAtOnce) {
  MetricsFile metrics(file(), 0);
  metrics.append(record(1));
  EXPECT_EQ(steps(), (Steps{1}));
  metrics.append(record(2));
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(Metrics, ResumedRunReplacesTheStepsItRepeats) {
  {
    MetricsFile metrics(file(), 0);
    for (int step = 1; step <= 5; ++step) metrics.append(record(step));
  }
  MetricsFile resumed(file(), 3);
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
  resumed.append(record(4));
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4}));
}

TEST_F(Metrics, TornLastLineIsCutOff) {
  write("metrics.jsonl", "{\"step\":1}\n{\"step\":2,\"lo");
  MetricsFile(file(), 2).append(record(2));
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(Metrics, FileOfSomethingElseIsLeftAsItIs) {
  for (const char* text : {"{\"step\":1}\nhello\n", "[1]\n", "{\"loss\":2}\n", "\n"}) {
    write("metrics.jsonl", text);
    expect_error(Errc::kFormat, {"metrics.jsonl:", "no step record"},
                 [&] { MetricsFile(file(), 9); });
    EXPECT_EQ(content(), text);
  }
}

TEST_F(Metrics, FileThatCannotBeMadeIsNamed) {
  expect_error(Errc::kIo, {"none/metrics.jsonl"},
               [&] { MetricsFile(path("none/metrics.jsonl"), 0); });
}

TEST_F(Metrics, FullDeviceIsAnErrorThatNamesTheFile) {
  MetricsFile full("/dev/full", 0);
  expect_error(Errc::kIo, {"/dev/full", "space"}, [&] { full.append(record(1)); });
}

TEST_F(Metrics, LineThatDoesNotFitLeavesNoHalf) {
  MetricsFile metrics(file(), 0);
  metrics.append(record(1));
  const std::string before = content();

  {
    const test::FileSizeLimit tight(before.size() + 10);
    expect_error(Errc::kIo, {"metrics.jsonl"}, [&] { metrics.append(record(2)); });
  }
  EXPECT_EQ(content(), before);
  metrics.append(record(2));
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST(MeanSeconds, FollowsStepTimesAndForgetsTheFirst) {
  MeanSeconds mean;
  EXPECT_EQ(mean.value(), 0.0);
  mean.add(30);
  EXPECT_DOUBLE_EQ(mean.value(), 30.0);
  mean.add(1);
  EXPECT_DOUBLE_EQ(mean.value(), (0.9 * 30 + 1) / 1.9);
  for (int i = 0; i < 100; ++i) mean.add(1);
  EXPECT_NEAR(mean.value(), 1.0, 1e-3);
}

}  // namespace
}  // namespace sluice::data
