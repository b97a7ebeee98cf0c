/// Updates that are one step late: whose gradient each takes and by which numbers, how a run gets
/// into the delay and out of it, and what it can go on from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/state_reader.h"
#include "engine/train/delay.h"
#include "tests/support/errors.h"
#include "tests/train/tiny_run.h"
#include "tests/train/witness.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Pending = checkpoint::Position::Pending;

/// Raises the signal when the fourth step is decided.
class Raiser : public executor::Handler {
 public:
  Raiser(executor::Handler& inner, std::atomic<int>& signal) : inner_(inner), signal_(signal) {}
  Ticket start(const executor::OpContext& context) override {
    const bool decides = schedule::id_of(context.op) == schedule::OpId::kDecide;
    if (decides && Tag::unpack(context.tag).step == 3) signal_ = 15;
    return inner_.start(context);
  }

 private:
  executor::Handler& inner_;
  std::atomic<int>& signal_;
};

class Delayed : public testing::Test {
 protected:
  static constexpr std::int64_t kSteps = 8;

  Delayed() : job_(tiny_job(folder_, tiny_llama())) {
    job_.train.steps = kSteps;
    job_.optimizer.update = schedule::Update::kDelayed;
    job_.optimizer.delayed_update_start = std::int64_t{2};
  }

  Observed witnessed(const Disturbance& disturbance = {}) {
    Job job = job_;
    job.hooks.wrap_handler = [this](executor::Handler& inner, const memory::SlotMemory& memory) {
      return std::make_unique<Witness>(inner, memory, seen_);
    };
    return observe(job, disturbance);
  }

  /// Of the programs of a step (or of the drain before it), by the step whose gradient it is.
  std::map<std::int64_t, std::set<std::int64_t>> applied_in() const {
    std::map<std::int64_t, std::set<std::int64_t>> steps;
    for (const auto& [id, update] : seen_.updates) {
      steps[std::get<0>(id)].insert(update.record.step);
    }
    return steps;
  }

  /// A run that is stopped after so many steps, which it saves.
  std::string saved_after(std::int64_t steps, Job job, const Disturbance& disturbance = {}) const {
    std::atomic<int> signal{0};
    job.stop = &signal;
    job.execution = Execution::kSerial;
    job.folder = folder_ / "stopped";
    job.on_step = [&](const data::StepRecord& record) {
      if (record.step == steps) signal = 15;
    };
    job.train.steps = kSteps;
    try {
      observe(job, disturbance);
    } catch (const std::exception&) {
      // There are no final weights to look at.
    }
    return job.folder + "/checkpoints/step-" + std::to_string(steps);
  }

  const TempFolder folder_;
  Job job_;
  Sightings seen_;
};

TEST_F(Delayed, AnUpdateTakesAllItsNumbersFromTheStepWhoseGradientItIs) {
  job_.train.gradient_clipping = 0.6;
  const Observed run = witnessed();
  const double close = static_cast<double>(run.plan.setup.model->parameters()) * 0x1p-53;
  std::map<std::int64_t, double> squares;  // by the step that computed the gradient
  int clipped = 0;
  for (const auto& [id, update] : seen_.updates) {
    const data::StepRecord& own = run.records[static_cast<std::size_t>(update.record.step)];
    EXPECT_EQ(update.record.lr, static_cast<float>(own.lr));
    EXPECT_EQ(update.record.t, own.step);
    EXPECT_NEAR(update.record.clip, own.clip, 0x1p-24);
    clipped += own.clip < 1;
    for (const float g : update.gradient) squares[update.record.step] += double{g} * double{g};
  }
  EXPECT_GT(clipped, 0);
  ASSERT_EQ(squares.size(), static_cast<std::size_t>(kSteps));
  for (const auto& [step, sum] : squares) {
    const double norm = run.records[static_cast<std::size_t>(step)].gnorm;
    EXPECT_NEAR(norm, std::sqrt(sum), norm * close) << step;
  }
  // Two as ever, the third leaves its gradient, the last one's is drained before its evaluation.
  std::map<std::int64_t, std::set<std::int64_t>> expected{
      {0, {0}}, {1, {1}}, {kSteps, {kSteps - 1}}};
  for (std::int64_t step = 3; step < kSteps; ++step) expected[step] = {step - 1};
  EXPECT_EQ(applied_in(), expected);
  for (const data::StepRecord& record : run.records) EXPECT_EQ(record.delayed, record.step > 2);
}

TEST_F(Delayed, EachUpdateGoesOnFromTheOneBefore) {
  witnessed();
  std::map<ChunkId, Floats> state = seen_.initial;
  for (const auto& [id, update] : seen_.updates) {
    const auto& [step, segment, chunk] = id;
    Floats& known = state.at({segment, chunk});
    EXPECT_EQ(update.before, known) << step;
    EXPECT_NE(update.after, known) << step;
    known = update.after;
  }
}

/// Where each evaluation drains, the step behind it leaves its gradient anew.
TEST_F(Delayed, DrainsBeforeEvaluationsWhereAsked) {
  job_.data.valid = job_.data.train;
  job_.eval = {.every = 4, .batches = 1, .drain = true};
  witnessed();
  const std::map<std::int64_t, std::set<std::int64_t>> expected{
      {0, {0}}, {1, {1}}, {3, {2}}, {4, {3}}, {5, {4}}, {6, {5}}, {7, {6}}, {8, {7}}};
  EXPECT_EQ(applied_in(),
            expected);  // the program of 4 is the drain: step 4 itself applies nothing
}

/// With drains or without: what the run tells last is said of the weights that it leaves.
TEST_F(Delayed, TheLastEvaluationIsOfTheFinalWeights) {
  job_.data.valid = job_.data.train;
  job_.eval = {.every = 3, .batches = 2};
  const Fingerprint print = run(job_);
  Job again = job_;
  again.weights = job_.folder + "/final";
  again.saves = false;
  EXPECT_EQ(make_session(again).evaluate(), print.valid_losses.back());
}

TEST_F(Delayed, WithoutAStepToComeItIsTheRunWithoutDelay) {
  struct Case {
    std::int64_t steps;
    data::StepsOrShare start;
  };
  for (const Case& c : {Case{1, std::int64_t{0}}, Case{kSteps, kSteps - 1},
                        Case{kSteps, kSteps + 100}, Case{kSteps, 1.0}}) {
    job_.train.steps = c.steps;
    job_.optimizer.delayed_update_start = c.start;
    job_.optimizer.update = schedule::Update::kEnd;
    const Fingerprint end = run(job_);
    job_.optimizer.update = schedule::Update::kDelayed;
    EXPECT_EQ(run(job_), end) << c.steps;
  }
}

TEST_F(Delayed, SkipsTheStepWhoseGradientIsNotFiniteAndNoOther) {
  job_.train.max_skips = 4;
  const std::set<std::int64_t> spoiled{2, 4, 5, 6};  // the first that is delayed; three in a row
  const Observed run = witnessed({.spoiled_steps = spoiled});
  std::int64_t applied = 0;
  for (const data::StepRecord& record : run.records) {
    EXPECT_EQ(record.skipped, spoiled.contains(record.step - 1));
  }
  std::map<std::int64_t, std::int64_t> t;
  for (std::int64_t step = 0; step < kSteps; ++step) t[step] = applied += !spoiled.contains(step);
  for (const auto& [id, update] : seen_.updates) {
    const std::int64_t of = update.record.step;
    EXPECT_EQ(update.before == update.after, spoiled.contains(of)) << of;
    if (!spoiled.contains(of)) {
      EXPECT_EQ(update.record.t, t.at(of));
    }
  }
}

TEST_F(Delayed, ThreeSkipsInARowEndTheRunThatAllowsTwo) {
  job_.train.max_skips = 3;
  test::expect_error(Errc::kNonFinite, {"step 6", "3 skipped steps in a row"}, [&] {
    run(job_, {.spoiled_steps = {3, 4, 5}});
  });
}

class Stopped : public Delayed, public testing::WithParamInterface<ClipScope> {};
INSTANTIATE_TEST_SUITE_P(Clipped, Stopped,
                         testing::Values(ClipScope::kGlobal, ClipScope::kSegment));

/// A signal comes while a gradient waits: it is saved, and applied when the run goes on.
TEST_P(Stopped, GoesOnBitForBit) {
  job_.train.clip_scope = GetParam();
  job_.train.gradient_clipping = 0.5;
  const Fingerprint whole = run(job_);
  for (const std::int64_t at : {2, 3, 5}) {
    Job job = job_;
    job.resume = saved_after(at, job);
    const checkpoint::StateReader reader(job.resume, {});
    EXPECT_EQ(reader.manifest().position.pending, at > 2 ? Pending::kApplied : Pending::kNone);
    EXPECT_EQ(reader.manifest().position.applied, at > 2 ? at - 1 : at) << "that the state has";
    const Fingerprint rest = run(job);
    EXPECT_EQ(rest.state, whole.state) << at;
    EXPECT_EQ(rest.weights, whole.weights) << at;
    EXPECT_EQ(rest.losses.back(), whole.losses.back()) << at;
  }
}

TEST_F(Delayed, AStopIsSavedWithWhatWaits) {
  std::atomic<int> signal{0};
  job_.stop = &signal;
  job_.on_step = [&](const data::StepRecord& record) {
    if (record.step == 4) signal = 15;
  };
  fs::create_directories(job_.folder);
  EXPECT_EQ(make_session(job_).run(), Outcome::kSaved);
}

/// The run that goes on does not come back to the drain of the last step that was saved.
TEST_F(Delayed, GoesOnFromAStopInAStepThatIsEvaluatedBehindADrain) {
  job_.data.valid = job_.data.train;
  job_.eval = {.every = 2, .batches = 1, .drain = true};
  const Fingerprint whole = run(job_);
  std::atomic<int> signal{0};
  Job job = job_;
  job.folder = folder_ / "stopped";
  fs::create_directories(job.folder);
  job.stop = &signal;
  job.execution = Execution::kSerial;
  job.hooks.wrap_handler = [&](executor::Handler& inner, const memory::SlotMemory&) {
    return std::make_unique<Raiser>(inner, signal);
  };
  EXPECT_EQ(make_session(job).run(), Outcome::kSaved);
  job_.resume = job.folder + "/checkpoints/step-4";
  job_.folder = folder_ / "rest";
  EXPECT_EQ(checkpoint::StateReader(job_.resume, {}).manifest().position.pending, Pending::kNone);
  EXPECT_EQ(run(job_).weights, whole.weights);
}

/// As of its state: docs/checkpoints.md.
TEST_F(Delayed, AFlippedBitOfTheGradientThatWaitsIsNamed) {
  job_.resume = saved_after(4, job_);
  std::string file;
  {
    const checkpoint::StateReader reader(job_.resume, {});
    const checkpoint::Record& last = reader.manifest().gradients.back();
    file = reader.manifest().files.at(last.file);
    std::fstream stream(fs::path(job_.resume) / file,
                        std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(last.offset + last.bytes() - 5);
    stream.seekg(at);
    const int byte = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 1));
  }
  test::expect_error(Errc::kCheckpoint, {file, "the gradient of ", "is not what was written"},
                     [&] { make_session(job_).run(); });
  job_.checkpoint.verify = false;
  EXPECT_NO_THROW(make_session(job_).run());
}

/// Also when nothing is left to do but to apply it.
TEST_F(Delayed, GoesOnFromItsLastStep) {
  const Fingerprint whole = run(job_);
  Job job = job_;
  job.checkpoint.every = kSteps;
  job.folder = folder_ / "saving";
  EXPECT_EQ(run(job).weights, whole.weights);
  job.resume = job.folder + "/checkpoints/step-" + std::to_string(kSteps);
  job.folder = folder_ / "rest";
  EXPECT_EQ(run(job).weights, whole.weights);
}

/// What waits was decided by the run that saved it.
TEST_F(Delayed, TheUpdateThatWaitsKeepsItsNumbersWhateverTheSettings) {
  job_.train.gradient_clipping = 0.5;
  job_.scheduler.type = data::SchedulerType::kCosine;
  const auto updates_of_the_fourth = [&] {
    std::erase_if(seen_.updates, [](const auto& update) { return update.second.record.step != 3; });
    return std::exchange(seen_.updates, {});
  };
  witnessed();
  const auto expected = updates_of_the_fourth();
  ASSERT_FALSE(expected.empty());
  job_.resume = saved_after(4, job_);
  job_.optimizer.lr *= 3;
  job_.train.steps = 2 * kSteps;
  job_.train.gradient_clipping = std::nullopt;
  witnessed();
  const auto applied = updates_of_the_fourth();
  ASSERT_EQ(applied.size(), expected.size());
  for (const auto& [id, update] : expected) {
    EXPECT_EQ(applied.at(id).record.lr, update.record.lr);
    EXPECT_EQ(applied.at(id).record.t, update.record.t);
    EXPECT_EQ(applied.at(id).after, update.after);
  }
}

/// The way out of the delay: the gradient that waits is applied before the first step.
TEST_F(Delayed, ARunThatBeginsItsDelayLaterAppliesAtOnceWhatWaits) {
  job_.resume = saved_after(4, job_);
  job_.optimizer.delayed_update_start = kSteps;
  witnessed();
  // The drain has the number of the step behind it, whose update of a chunk is what is remembered.
  std::map<std::int64_t, std::set<std::int64_t>> expected;
  for (std::int64_t step = 4; step < kSteps; ++step) expected[step] = {step};
  EXPECT_EQ(applied_in(), expected);
  for (const auto& [chunk, state] : seen_.initial) {
    EXPECT_NE((seen_.updates.at({4, chunk.first, chunk.second}).before), state);
  }
}

TEST_F(Delayed, RefusesAGradientThatItCannotApply) {
  const auto refused = [&](const Job& job, const std::vector<std::string>& words) {
    test::expect_error(Errc::kConfig, words, [&] { make_session(job); });
  };
  job_.train.clip_scope = ClipScope::kSegment;
  job_.train.gradient_clipping = 0.6;
  job_.settings = {{"train.gradient_clipping", "0.6"}, {"precision.compute", "fp32"}};
  job_.resume = saved_after(4, job_);
  EXPECT_NO_THROW(make_session(job_));
  Job other = job_;
  other.optimizer.update = schedule::Update::kEnd;
  refused(other, {"step-4: the update of step 4 is still to come", "optimizer.update: delayed",
                  "delayed_update_start"});
  other = job_;
  other.train.clip_scope = ClipScope::kGlobal;
  refused(other, {"the update of step 4", "set train.gradient_clipping: 0.6, train.clip_scope"});
  other.train.clip_scope = ClipScope::kSegment;
  other.train.gradient_clipping = std::nullopt;
  refused(other, {"the update of step 4", "set train.gradient_clipping: 0.6, train.clip_scope"});
  other = job_;
  other.compute = DType::kBf16;
  refused(other, {"its gradient of embedding is F32, this run's are BF16",
                  "set precision.compute: fp32, precision.grad_dtype,"});
}

/// Nothing would be lost of it.
TEST_F(Delayed, AnyRunGoesOnFromAStepThatIsSkipped) {
  job_.resume = saved_after(4, job_, {.spoiled_steps = {3}});
  ASSERT_EQ(checkpoint::StateReader(job_.resume, {}).manifest().position.pending,
            Pending::kSkipped);
  job_.optimizer.update = schedule::Update::kEnd;
  witnessed();
  std::map<std::int64_t, std::set<std::int64_t>> expected;
  for (std::int64_t step = 4; step < kSteps; ++step) expected[step] = {step};
  EXPECT_EQ(applied_in(), expected);
  for (const auto& [id, update] : seen_.updates) {
    EXPECT_EQ(update.record.t, update.record.step);  // one of the steps before was skipped
  }
}

TEST(Delay, SaysFromWhichStepOnAndWhatItMeans) {
  OptimizerOptions options;
  EXPECT_EQ(delayed_start(options, 1000), 40);
  options.delayed_update_start = 0.25;
  EXPECT_EQ(delayed_start(options, 1000), 250);
  EXPECT_THAT(describe_delay(40, 500, {}), HasSubstr("from step 41 on"));
  EXPECT_THAT(describe_delay(40, 500, {}),
              AllOf(HasSubstr("one step late"), Not(HasSubstr("waits"))));
  EXPECT_THAT(describe_delay(500, 500, {}), HasSubstr("no update is late; lower"));
  // The last step's gradient is applied before the final weights.
  EXPECT_THAT(describe_delay(499, 500, {}), HasSubstr("no update is late; lower"));
  EXPECT_THAT(describe_delay(498, 500, {}), Not(HasSubstr("no update is late")));
}

TEST(Delay, SaysWhenWhatWaitsIsApplied) {
  checkpoint::Position position;
  position.step = 100;
  position.pending = Pending::kApplied;
  EXPECT_THAT(describe_delay(100, 500, position),
              HasSubstr("a gradient of step 100 waits: its update is applied beside the first"));
  EXPECT_THAT(describe_delay(101, 500, position), HasSubstr("is applied before the first step"));
  EXPECT_THAT(describe_delay(40, 100, position), HasSubstr("is applied before the final weights"));
  // The way out of the delay is not advised against.
  EXPECT_THAT(describe_delay(500, 500, position),
              AllOf(HasSubstr("no other update is late"), Not(HasSubstr("lower"))));
}

}  // namespace
}  // namespace sluice::train
