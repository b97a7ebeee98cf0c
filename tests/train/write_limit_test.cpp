/// How much a run may write to its drives, and whether it checks what they carry.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "tests/train/faults.h"

namespace sluice::train {
namespace {

using testing::HasSubstr;

/// First values and three steps of five: each writes the state once.
TEST(WriteLimit, EndsTheRunBeforeTheStepThatWouldPassItWithWeights) {
  const TempFolder folder;
  // Overlapped, what one step writes may be counted in its neighbour.
  Job job = nvme_job(folder, Execution::kSerial);
  job.train.steps = 5;
  job.scheduler.type = data::SchedulerType::kCosine;
  std::vector<data::StepRecord> records;
  job.on_step = [&](const data::StepRecord& record) { records.push_back(record); };
  run(job);
  ASSERT_EQ(records.size(), 5U);
  const Bytes state = records.back().nvme_write_bytes;
  EXPECT_EQ(records.back().nvme_write_total, 6 * state);
  const std::vector<data::StepRecord> whole = std::exchange(records, {});
  const auto run_with = [&](Bytes most) {
    records.clear();
    fs::remove_all(job.folder);
    job.limits.max_write_total = most;
    return ending_of([&] { run(job); });
  };
  for (const Bytes most : {4 * state, 5 * state - 1}) {
    EXPECT_EQ(run_with(most).code, std::nullopt);
    ASSERT_EQ(records.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(records[i].loss, whole[i].loss);
      EXPECT_EQ(records[i].lr, whole[i].lr);  // the schedule is that of five steps
    }
    EXPECT_FALSE(records.back().memory.empty());
    EXPECT_TRUE(fs::exists(fs::path(job.folder) / "final" / "model.safetensors"));
  }
  run_with(6 * state);
  EXPECT_EQ(records.size(), 5U);
  const Ending refused = run_with(2 * state - 1);
  EXPECT_EQ(refused.code, Errc::kConfig);
  EXPECT_THAT(refused.message, HasSubstr("limits.max_write_total"));
}

/// Of a run that goes on, the update that waits comes on top of one a step.
TEST(WriteLimit, CountsTheUpdateThatWaits) {
  const TempFolder folder;
  Job job = nvme_job(folder, Execution::kSerial);
  job.train.steps = 6;
  job.optimizer.update = schedule::Update::kDelayed;
  job.optimizer.delayed_update_start = std::int64_t{1};
  job.checkpoint.every = std::int64_t{3};
  std::vector<data::StepRecord> records;
  job.on_step = [&](const data::StepRecord& record) { records.push_back(record); };
  run(job);
  ASSERT_EQ(records.size(), 6U);
  const Bytes state = records[0].nvme_write_bytes;  // an update of its own; the next leaves its one
  EXPECT_EQ(records[1].nvme_write_total, 2 * state);
  EXPECT_EQ(records.back().nvme_write_total, 7 * state) << "with the update of the last step";

  job.resume = job.folder + "/checkpoints/step-3";  // two of three updates, and first values
  const auto total_with = [&](Bytes most) {
    records.clear();
    job.folder = folder / "limited";
    fs::remove_all(job.folder);
    job.limits.max_write_total = most;
    run(job);
    return records.back().nvme_write_total;
  };
  EXPECT_EQ(total_with(6 * state), 6 * state);
  EXPECT_EQ(records.size(), 1U);
  EXPECT_EQ(total_with(7 * state - 1), 6 * state);
  EXPECT_EQ(total_with(7 * state), 7 * state);
  EXPECT_EQ(records.size(), 2U);
  EXPECT_EQ(total_with(100 * state), 8 * state);
  EXPECT_EQ(records.size(), 3U);
}

/// The simulator knows what a check costs; the run file may still say what it wants.
TEST(Verify, AutoChecksWhereTheStepHasTimeForIt) {
  const TempFolder folder;
  Job job = nvme_job(folder, Execution::kOverlapped);
  job.rates = plan::Rates();
  job.rates->nvme_read = job.rates->nvme_write = {1e9, 1e9};
  job.rates->check_cores = 0.5;
  const auto says = [&](double checks, nvme::Verify verify) {
    job.rates->checks = checks;
    job.aio.verify = verify;
    return make_session(job).report();
  };
  const auto is_checked = HasSubstr("what drives carry is checked, XXH3 at ");
  const auto is_not = HasSubstr("what drives carry is not checked, XXH3 at ");
  EXPECT_THAT(says(1e15, nvme::Verify::kAuto), is_checked);
  EXPECT_THAT(says(1e5, nvme::Verify::kAuto), is_not);
  EXPECT_THAT(says(1e5, nvme::Verify::kTrue), is_checked);
  EXPECT_THAT(says(1e15, nvme::Verify::kFalse), is_not);
}

}  // namespace
}  // namespace sluice::train
