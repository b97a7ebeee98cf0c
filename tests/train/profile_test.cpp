#include "engine/train/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "engine/executor/driver.h"
#include "tests/prefetch/programs.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

using prefetch::Cause;
using ::testing::ElementsAre;

const prefetch::Lanes kLanes = {prefetch::kStream, {"wide", 2, prefetch::Issue::kOldestReady}};
const prefetch::Pools kPools = {prefetch::pool_of(1)};

std::shared_ptr<const prefetch::Program> three_ops() {
  prefetch::Writing w;
  auto made = std::make_shared<prefetch::Program>("step", w.residents());
  prefetch::Op op = prefetch::make_op(0, {}, {});
  op.kind = {1, "forward"};
  op.where = {2, 7, 1};
  made->op(op);
  made->op(prefetch::make_op(1, {}, {}));
  made->op(prefetch::make_op(1, {}, {}));
  made->seal();
  return made;
}

Span span(std::uint32_t lane, prefetch::OpRef op, Cause cause, Nanos ready, Nanos begin,
          Nanos end) {
  return {lane, 1, executor::place(op), executor::pack(cause), ready, begin, end};
}

nlohmann::json parse(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(Profile, WritesAnEventPerOpOfItsStepsOnTheTracksOfTheLanes) {
  const TempFolder folder;
  const std::string path = folder / "trace.json";
  const auto program = three_ops();
  Trace ring(10);
  ring.add(span(0, {3, 0}, {}, 0, 10, 20));  // of another program
  ring.add(span(0, {4, 0}, {Cause::Kind::kLane, 1}, 1'000, 1'500, 4'000));
  ring.add(span(1, {4, 1}, {Cause::Kind::kMemory, 0}, 1'000, 1'000, 3'000));
  ring.add(span(1, {4, 2}, {}, 2'000, 2'000, 5'000));
  {
    Profile profile({5, 5}, path, kLanes, kPools);
    EXPECT_FALSE(profile.wants(4));
    EXPECT_TRUE(profile.wants(5));
    EXPECT_FALSE(profile.wants(6));
    profile.collect(5, 4, *program, ring);
    profile.write();
  }
  const auto json = parse(path);
  std::vector<nlohmann::json> ops;
  std::map<std::string, int> tracks;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") ops.push_back(event);
    if (event["name"] == "thread_name") tracks[event["args"]["name"]] = event["tid"];
  }
  ASSERT_EQ(ops.size(), 3U);
  EXPECT_EQ(tracks.size(), 3U);
  EXPECT_EQ(ops[0]["tid"], tracks["wide"]);
  EXPECT_EQ(ops[0]["ts"], 0.0);
  EXPECT_EQ(ops[0]["args"]["waited_for"], "memory of pool");
  EXPECT_EQ(ops[1]["name"], "forward");
  EXPECT_EQ(ops[1]["tid"], tracks["stream"]);
  EXPECT_EQ(ops[1]["ts"], 0.5);
  EXPECT_EQ(ops[1]["dur"], 2.5);
  EXPECT_EQ(
      ops[1]["args"].dump(),
      R"({"chunk":7,"micro_batch":1,"program":"step","ready_before_us":0.5,"segment":2,"step":5,)"
      R"("waited_for":"wide"})");
  EXPECT_EQ(ops[2]["tid"], tracks["wide (2)"]);
  EXPECT_EQ(ops[2]["args"]["waited_for"], "stream");
}

TEST(Profile, AFileThatCannotBeWrittenIsAWarning) {
  ::testing::internal::CaptureStderr();
  const auto program = three_ops();
  {
    Profile profile({1, 1}, "/proc/nowhere/trace.json", kLanes, kPools);
    profile.collect(1, 0, *program, Trace(1));
    profile.write();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("cannot write /proc/nowhere/trace.json"));
}

/// What a whole run tells of its time and memory, by both drivers.
class TimeOfARun : public ::testing::TestWithParam<Execution> {
 protected:
  Job job() const {
    Job made = tiny_job(folder_, tiny_gpt());
    made.execution = GetParam();
    made.homes.offload_optimizer = schedule::OptimizerHome::kNvme;
    return made;
  }
  TempFolder folder_;
};

TEST_P(TimeOfARun, EachLanesSharesAddUpToOneAndTheBoundIsTheBusiest) {
  Job made = job();
  std::vector<data::StepRecord> records;
  made.on_step = [&](const data::StepRecord& record) { records.push_back(record); };
  std::filesystem::create_directories(made.folder);
  make_session(made).run();
  ASSERT_EQ(records.size(), 5U);
  for (const data::StepRecord& record : records) {
    ASSERT_FALSE(record.lanes.empty());
    double busiest = 0;
    for (const data::LaneShare& lane : record.lanes) {
      double sum = lane.busy;
      for (const auto& [reason, share] : lane.idle) {
        EXPECT_GT(share, 0);
        sum += share;
      }
      EXPECT_NEAR(sum, 1.0, 1e-9) << lane.lane;
      busiest = std::max(busiest, lane.busy);
      if (lane.lane == record.bound) {
        EXPECT_EQ(lane.busy, record.bound_share);
      }
    }
    EXPECT_EQ(busiest, record.bound_share);
    EXPECT_EQ(record.memory.empty(), record.step < 5);
  }
  EXPECT_GT(records.back().resident_peak, 1_MiB);
  Bytes cpu = 0;
  for (const data::MemoryUse& use : records.back().memory) {
    EXPECT_GT(use.peak, 0U) << use.tier << ' ' << use.name;
    EXPECT_LE(use.peak, use.reserved) << use.tier << ' ' << use.name;
    if (use.name == "workspace") {
      EXPECT_LT(use.peak, use.reserved) << "the workers' part is twice what they need";
    }
    if (use.tier == "cpu") cpu += use.reserved;
  }
  EXPECT_EQ(cpu, records.back().cpu_bytes);
}

TEST_P(TimeOfARun, TheProfileHasEveryOpOfItsStepsOnce) {
  Job made = job();
  made.profile.steps = StepRange{4, 9};  // the run has 5
  made.data.valid = made.data.train;
  made.eval = {.every = 1, .batches = 1};
  std::filesystem::create_directories(made.folder);
  std::size_t ops = 0;
  std::size_t evaluation = 0;
  {
    Session session(made);
    ops = session.plan().programs.step->ops().size();
    evaluation = session.plan().programs.evaluation->ops().size();
    session.run();
  }
  const auto json = parse(made.folder + "/trace.json");
  std::map<std::pair<int, std::string>, std::size_t> seen;
  std::map<int, double> last_end;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++seen[{event["args"]["step"].get<int>(), event["args"]["program"].get<std::string>()}];
    EXPECT_GE(event["args"]["ready_before_us"], 0.0);
    const double begin = event["ts"];
    double& end = last_end[event["tid"]];
    EXPECT_GE(begin, end - 1e-3);  // events of a track do not overlap
    end = begin + event["dur"].get<double>();
  }
  EXPECT_EQ(seen, (decltype(seen){{{4, "step"}, ops},
                                  {{4, "evaluation"}, evaluation},
                                  {{5, "step"}, ops},
                                  {{5, "evaluation"}, evaluation}}));
}

INSTANTIATE_TEST_SUITE_P(Drivers, TimeOfARun,
                         ::testing::Values(Execution::kOverlapped, Execution::kSerial),
                         [](const auto& execution) {
                           return execution.param == Execution::kSerial ? "Serial" : "Overlapped";
                         });

}  // namespace
}  // namespace sluice::train
