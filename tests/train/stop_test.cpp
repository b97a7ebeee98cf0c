// A signal to stop begins no other program; what has begun is told about.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "engine/checkpoint/checkpoints.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

/// Asks to stop as soon as it is told of the first step.
struct Stopped {
  explicit Stopped(Job job, Execution execution) {
    job.execution = execution;
    job.stop = &signal;
    job.on_step = [&](const data::StepRecord& record) {
      records.push_back(record);
      signal = 2;
    };
    std::filesystem::create_directories(job.folder);
    outcome = make_session(job).run();
    final_weights = std::filesystem::exists(job.folder + "/final");
  }

  std::atomic<int> signal{0};
  std::vector<data::StepRecord> records;
  Outcome outcome = Outcome::kDone;
  bool final_weights = false;
};

class Stop : public testing::TestWithParam<Execution> {};
INSTANTIATE_TEST_SUITE_P(Drivers, Stop,
                         testing::Values(Execution::kSerial, Execution::kOverlapped));

TEST_P(Stop, WhileTheFirstStepIsToldOfBeginsNoOther) {
  const TempFolder folder;
  Job job = tiny_job(folder, tiny_llama());
  job.train.steps = 10;
  job.checkpoint.save_on_signal = false;
  const Stopped run(job, GetParam());
  EXPECT_EQ(run.outcome, Outcome::kStopped);
  EXPECT_FALSE(run.final_weights);
  EXPECT_FALSE(std::filesystem::exists(job.folder + "/checkpoints"));
  // Overlapped, the second may have begun before the first was told of.
  const std::size_t begun = GetParam() == Execution::kSerial ? 1 : 2;
  ASSERT_GE(run.records.size(), 1U);
  EXPECT_LE(run.records.size(), begun);
  EXPECT_EQ(run.records.back().step, static_cast<std::int64_t>(run.records.size()));
}

TEST_P(Stop, SavesAllThatWasDone) {
  const TempFolder folder;
  Job job = tiny_job(folder, tiny_llama());
  job.train.steps = 10;
  const Stopped run(job, GetParam());
  EXPECT_EQ(run.outcome, Outcome::kSaved);
  EXPECT_FALSE(run.final_weights);
  const auto saved = checkpoint::list_checkpoints(job.folder + "/checkpoints");
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(saved[0].step, run.records.back().step);
  EXPECT_TRUE(saved[0].complete);
}

/// What was asked for from outside is saved, and the run goes on.
TEST(StopSignal, AWishForACheckpointIsServedOnce) {
  const TempFolder folder;
  Job job = tiny_job(folder, tiny_llama());
  int asked = 0;
  job.wants_checkpoint = [&] { return ++asked == 3; };
  std::filesystem::create_directories(job.folder);
  EXPECT_EQ(make_session(job).run(), Outcome::kDone);
  EXPECT_EQ(asked, 5);  // once a step
  const auto saved = checkpoint::list_checkpoints(job.folder + "/checkpoints");
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(saved[0].step, 3);
}

/// Raises the signal when the second step is decided.
class Raiser : public executor::Handler {
 public:
  Raiser(executor::Handler& inner, std::atomic<int>& signal) : inner_(inner), signal_(signal) {}
  Ticket start(const executor::OpContext& context) override {
    const bool decides = schedule::id_of(context.op) == schedule::OpId::kDecide;
    if (decides && Tag::unpack(context.tag).step == 1) signal_ = 15;
    return inner_.start(context);
  }

 private:
  executor::Handler& inner_;
  std::atomic<int>& signal_;
};

/// The second of ten steps is evaluated, and the signal came before that.
std::vector<data::StepRecord> stopped_before_its_evaluation(bool save, Outcome expected) {
  const TempFolder folder;
  Job job = tiny_job(folder, tiny_llama());
  job.data.valid = job.data.train;
  job.train.steps = 10;
  job.eval = {.every = 1, .batches = 1};
  job.checkpoint.save_on_signal = save;
  job.execution = Execution::kSerial;
  std::atomic<int> signal{0};
  job.stop = &signal;
  job.hooks.wrap_handler = [&](executor::Handler& inner, const memory::SlotMemory&) {
    return std::make_unique<Raiser>(inner, signal);
  };
  std::vector<data::StepRecord> records;
  job.on_step = [&](const data::StepRecord& record) { records.push_back(record); };
  std::filesystem::create_directories(job.folder);
  EXPECT_EQ(make_session(job).run(), expected);
  EXPECT_EQ(records.size(), 2U);
  EXPECT_TRUE(records.front().valid_loss.has_value());
  EXPECT_FALSE(records.back().memory.empty());  // as in every run's last line
  return records;
}

TEST(StopSignal, BeginsNoEvaluationAndStillTellsOfItsStep) {
  EXPECT_FALSE(
      stopped_before_its_evaluation(false, Outcome::kStopped).back().valid_loss.has_value());
}

/// Going on from it does not come back to the step.
TEST(StopSignal, WhatIsSavedHasTheEvaluationOfItsLastStep) {
  EXPECT_TRUE(stopped_before_its_evaluation(true, Outcome::kSaved).back().valid_loss.has_value());
}

TEST(StopSignal, BeforeTheFirstStepRunsNone) {
  const TempFolder folder;
  Job job = tiny_job(folder, tiny_llama());
  const std::atomic<int> signal{15};
  job.stop = &signal;
  int steps = 0;
  job.on_step = [&](const data::StepRecord&) { ++steps; };
  std::filesystem::create_directories(job.folder);
  EXPECT_EQ(make_session(job).run(), Outcome::kStopped);
  EXPECT_EQ(steps, 0);
}

}  // namespace
}  // namespace sluice::train
