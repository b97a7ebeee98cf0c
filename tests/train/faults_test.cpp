/// What a run does when the drive, the disk or the numbers fail under it: it ends with an error
/// that says what and where, and leaves no final weights behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/faulty_queue.h"
#include "tests/support/file_size_limit.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using schedule::OpId;
using test::FaultCounts;
using test::Faults;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

/// How a run ended: no code when it went well.
struct Ending {
  std::optional<Errc> code;
  std::string message;
};

template <class Work>
Ending ending_of(const Work& work) {
  try {
    work();
    return {};
  } catch (const Error& e) {
    return {e.code, e.what()};
  }
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

/// Neither weights nor the folder they were being written to, nor anything in the nvme tier's.
void expect_nothing_left(const Job& job) {
  for (const std::string& name : entries_of(job.folder)) EXPECT_EQ(name, "nvme");
  const fs::path nvme = fs::path(job.folder) / "nvme";
  if (fs::exists(nvme)) {
    EXPECT_THAT(entries_of(nvme), testing::IsEmpty());
  }
}

/// Two steps whose optimizer state is on "nvme".
Job nvme_job(const TempFolder& folder, Execution execution) {
  Job job = tiny_job(folder, tiny_gpt());
  job.train.steps = 2;
  job.homes.offload_optimizer = schedule::OptimizerHome::kNvme;
  job.execution = execution;
  return job;
}

/// Puts the faults between the store and the kernel; what was injected is known after the run.
std::shared_ptr<std::shared_ptr<const test::FaultySeam>> inject(Job& job, const Faults& faults) {
  auto seam = std::make_shared<std::shared_ptr<const test::FaultySeam>>();
  job.hooks.wrap_queue = [=, aio = job.aio](std::unique_ptr<nvme::IoQueue>) {
    auto queue = std::make_unique<test::FaultyQueue>(aio, faults);
    *seam = queue->seam();
    return queue;
  };
  return seam;
}

/// Every request in its turn; where the crown is reduced, since all is slow there, some of them.
std::uint64_t stride() {
  return std::getenv("SLUICE_CROWN") == nullptr ? 1 : 7;
}

class DriveFaults : public testing::TestWithParam<Execution> {
 protected:
  Job job() const { return nvme_job(folder_, GetParam()); }

  /// Requests of an undisturbed run: `chunks` writes of the initial state, then steps, then
  /// `chunks` reads for the final weights.
  void count_requests() {
    Job quiet = job();
    const Session session(quiet);
    for (const auto& op : session.plan().programs.final->ops()) {
      chunks_ += schedule::id_of(op) == OpId::kReadState;
    }
    const auto seam = inject(quiet, {});
    run(quiet);
    requests_ = (*seam)->counts().requests;
    ASSERT_GT(chunks_, 1U);
    ASSERT_EQ(requests_, chunks_ * (1 + 2 * 2 + 1));
  }

  Ending run_with(const Faults& faults) {
    Job disturbed = job();
    const auto seam = inject(disturbed, faults);
    const Ending ending = ending_of([&] { run(disturbed); });
    EXPECT_GT((*seam)->counts().failures, 0U);
    expect_nothing_left(disturbed);
    return ending;
  }

  TempFolder folder_;
  std::uint64_t chunks_ = 0;
  std::uint64_t requests_ = 0;
};

TEST_P(DriveFaults, AFailedRequestEndsTheRunWithErrnoFileAndOffset) {
  count_requests();
  for (std::uint64_t n = 0; n < requests_; n += stride()) {
    SCOPED_TRACE(testing::Message() << "request " << n << " of " << requests_);
    const Ending ending = run_with({.fail_request = n});
    EXPECT_EQ(ending.code, Errc::kIo);
    EXPECT_THAT(ending.message, AllOf(HasSubstr("errno 5"), HasSubstr(folder_ / "run/nvme/sluice-"),
                                      HasSubstr("at offset "), HasSubstr("bytes"),
                                      ContainsRegex("in the op '(read|write|save)[a-z ]* segment "
                                                    "[0-9]+ chunk [0-9]+' of the program '")));
  }
}

/// Each read of the run in its turn: nothing makes use of the bytes, so the run's error is its own.
TEST_P(DriveFaults, AFlippedBitEndsTheRunWithFileOffsetAndOp) {
  count_requests();
  std::uint64_t reads = 0;
  for (std::uint64_t n = 0; n < requests_; n += stride()) {
    SCOPED_TRACE(testing::Message() << "request " << n << " of " << requests_);
    Job disturbed = job();
    disturbed.aio.verify = nvme::Verify::kTrue;
    const auto seam = inject(disturbed, {.flip_request = n});
    const Ending ending = ending_of([&] { run(disturbed); });
    if ((*seam)->counts().failures == 0) {  // a write
      EXPECT_EQ(ending.code, std::nullopt);
      continue;
    }
    ++reads;
    expect_nothing_left(disturbed);
    EXPECT_EQ(ending.code, Errc::kIo);
    EXPECT_THAT(ending.message,
                AllOf(HasSubstr("not what was written"), HasSubstr(folder_ / "run/nvme/sluice-"),
                      HasSubstr("bytes at offset "), HasSubstr("in the op 'read state segment ")));
  }
  // Two steps, and the final weights. Overlapped, the n-th request may be a read in one run and a
  // write in another.
  if (GetParam() == Execution::kSerial && stride() == 1) {
    EXPECT_EQ(reads, chunks_ * 3);
  }
  EXPECT_GT(reads, chunks_ / stride());
}

/// Weights alone on the drive, or block inputs alone: every request is one of theirs.
TEST_P(DriveFaults, AnErrorOnAParameterOrAnActivationEndsTheRunAlike) {
  for (const bool weights : {true, false}) {
    Job quiet = job();
    quiet.homes.offload_optimizer = schedule::OptimizerHome::kCpu;
    if (weights) quiet.homes.offload_param = schedule::ParamHome::kNvme;
    if (!weights) quiet.homes.offload_activation = schedule::ActivationHome::kNvme;
    const auto counted = inject(quiet, {});
    run(quiet);
    const std::uint64_t requests = (*counted)->counts().requests;
    ASSERT_GT(requests, 4U);
    for (const std::uint64_t n : {std::uint64_t{0}, requests / 2, requests - 1}) {
      SCOPED_TRACE(testing::Message() << (weights ? "weights" : "activations") << ", request " << n
                                      << " of " << requests);
      Job disturbed = quiet;
      const auto seam = inject(disturbed, {.fail_request = n});
      const Ending ending = ending_of([&] { run(disturbed); });
      EXPECT_GT((*seam)->counts().failures, 0U);
      EXPECT_EQ(ending.code, Errc::kIo);
      EXPECT_THAT(ending.message,
                  AllOf(HasSubstr("errno 5"), HasSubstr(folder_ / "run/nvme/sluice-"),
                        HasSubstr("at offset ")));
      expect_nothing_left(disturbed);
    }
  }
}

TEST_P(DriveFaults, ARequestThatNeverEndsEndsTheRun) {
  count_requests();
  for (const std::uint64_t n : {std::uint64_t{0}, requests_ / 2, requests_ - 1}) {
    SCOPED_TRACE(testing::Message() << "request " << n << " of " << requests_);
    Job disturbed = job();
    disturbed.aio.timeout = std::chrono::seconds(1);
    const auto seam = inject(disturbed, {.never_request = n});
    const Ending ending = ending_of([&] { run(disturbed); });
    EXPECT_GT((*seam)->counts().failures, 0U);
    expect_nothing_left(disturbed);
    EXPECT_EQ(ending.code, Errc::kWatchdog);
    EXPECT_THAT(ending.message, AllOf(HasSubstr(folder_ / "run/nvme/sluice-"),
                                      HasSubstr("has not come back for 1 s")));
  }
}

TEST_P(DriveFaults, AFullDiskUnderTheStateIsNamed) {
  count_requests();
  const Ending ending = run_with({.fail_request = 0, .fail_errno = ENOSPC});
  EXPECT_EQ(ending.code, Errc::kIo);
  EXPECT_THAT(ending.message, AllOf(HasSubstr("errno 28"), HasSubstr("is full")));
}

/// Reads for certain: the first request of the first step, and all of the final program.
TEST_P(DriveFaults, AFileThatEndsTooEarlyEndsTheRun) {
  count_requests();
  std::vector<std::uint64_t> reads = {chunks_, requests_ - chunks_, requests_ - 1};
  // Op by op, every other request of a step is a read.
  if (GetParam() == Execution::kSerial) reads.push_back(chunks_ + 2 * (chunks_ / 2 + chunks_));
  for (const std::uint64_t n : reads) {
    SCOPED_TRACE(testing::Message() << "request " << n << " of " << requests_);
    const Ending ending = run_with({.end_request = n});
    EXPECT_EQ(ending.code, Errc::kIo);
    EXPECT_THAT(ending.message, AllOf(HasSubstr("the file ends here"), HasSubstr("at offset "),
                                      HasSubstr(folder_ / "run/nvme/sluice-")));
  }
}

TEST_P(DriveFaults, ShortInterruptedAndLateTransfersDoNotShow) {
  const Fingerprint expected = run(job());
  Job disturbed = job();
  const auto seam = inject(disturbed, {.seed = 5,
                                       .short_transfers = 0.5,
                                       .interrupts = 0.2,
                                       .reorder = 3,
                                       .delay = std::chrono::microseconds(200)});
  EXPECT_EQ(run(disturbed), expected);
  const FaultCounts counts = (*seam)->counts();
  EXPECT_GT(counts.shorts, 20U);
  EXPECT_GT(counts.interrupts, 20U);
}

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

TEST(SlowDrive, IsTheBoundOfEveryStepAndChangesNoBits) {
  const TempFolder folder;
  const Job job = nvme_job(folder, Execution::kOverlapped);
  const Fingerprint expected = run(job);
  Job slow = job;
  // Hundreds of times as long as anything else that these steps do.
  const auto seam = inject(slow, {.delay = std::chrono::milliseconds(40)});
  std::vector<std::string> bounds;
  slow.on_step = [&](const data::StepRecord& record) { bounds.push_back(record.bound); };
  EXPECT_EQ(run(slow), expected);
  EXPECT_EQ(bounds.size(), 2U);
  EXPECT_THAT(bounds, testing::Each(testing::StartsWith("nvme-")));
}

INSTANTIATE_TEST_SUITE_P(Drivers, DriveFaults,
                         testing::Values(Execution::kSerial, Execution::kOverlapped),
                         [](const auto& info) {
                           return info.param == Execution::kSerial ? "Serial" : "Overlapped";
                         });

/// Which op of which kind fails, and how: thrown by start(), or by the ticket.
struct Trap {
  enum class How : std::uint8_t { kThrow, kTicket } how = How::kThrow;
  std::optional<OpId> kind;
  int occurrence = 0;
};

class TrappedHandler : public executor::Handler {
 public:
  using Counts = std::map<OpId, int>;
  TrappedHandler(executor::Handler& inner, const Trap& trap, Counts& started)
      : inner_(inner), trap_(trap), started_(started) {}

  Ticket start(const executor::OpContext& context) override {
    const OpId id = schedule::id_of(context.op);
    {
      const std::lock_guard lock(mutex_);
      const int number = started_[id]++;
      if (trap_.kind != id || trap_.occurrence != number) return inner_.start(context);
    }
    const Error error(Errc::kDevice, "the trap");
    if (trap_.how == Trap::How::kThrow) throw Error(error);
    TicketSource source;
    const Ticket ticket = source.ticket();
    source.fail(std::make_exception_ptr(error));
    return ticket;
  }
  void freed(const prefetch::Freed& slot) override { inner_.freed(slot); }

 private:
  executor::Handler& inner_;
  const Trap trap_;
  std::mutex mutex_;
  Counts& started_;
};

Ending run_into(Job job, const Trap& trap, TrappedHandler::Counts& started) {
  job.hooks.wrap_handler = [&](executor::Handler& inner, const memory::SlotMemory&) {
    return std::make_unique<TrappedHandler>(inner, trap, started);
  };
  fs::remove_all(job.folder);
  fs::create_directories(job.folder);
  return ending_of([&] { make_session(job).run(); });
}

class OpFaults : public testing::TestWithParam<Execution> {};

TEST_P(OpFaults, AnyOpThatFailsEndsTheRunWithItsError) {
  const TempFolder folder;
  Job job = nvme_job(folder, GetParam());
  job.train.gradient_accumulation_steps = 2;  // so that there is something to accumulate
  job.train.train_batch_size = 4;
  job.data.valid = job.data.train;
  job.eval = {.every = 1, .batches = 1};
  std::mt19937 random(11);
  TrappedHandler::Counts tried;
  struct Homes {
    schedule::ParamHome param;
    schedule::ActivationHome activation;
  };
  // Weights at home on the host are fetched, those on the device published and their layers kept,
  // those on nvme read and written; so are activations there.
  for (const auto& [param, activation] :
       {Homes{schedule::ParamHome::kCpu, schedule::ActivationHome::kNone},
        Homes{schedule::ParamHome::kNone, schedule::ActivationHome::kNone},
        Homes{schedule::ParamHome::kNvme, schedule::ActivationHome::kNvme}}) {
    job.homes.offload_param = param;
    job.homes.offload_activation = activation;
    TrappedHandler::Counts ops;
    ASSERT_EQ(run_into(job, {}, ops).code, std::nullopt);
    for (const auto& [kind, count] : ops) {
      if (tried[kind]++ > 0) continue;
      for (const Trap::How how : {Trap::How::kThrow, Trap::How::kTicket}) {
        const int occurrence = std::uniform_int_distribution(0, count - 1)(random);
        SCOPED_TRACE(testing::Message()
                     << schedule::kind_of(kind).name << " number " << occurrence << " of " << count
                     << (how == Trap::How::kThrow ? ", thrown" : ", by ticket"));
        TrappedHandler::Counts ignored;
        const Ending ending = run_into(job, {how, kind, occurrence}, ignored);
        EXPECT_EQ(ending.code, Errc::kDevice);
        EXPECT_EQ(ending.message, "the trap");
        expect_nothing_left(job);
      }
    }
  }
  EXPECT_EQ(tried.size(), static_cast<std::size_t>(OpId::kCount));
}

INSTANTIATE_TEST_SUITE_P(Drivers, OpFaults,
                         testing::Values(Execution::kSerial, Execution::kOverlapped),
                         [](const auto& info) {
                           return info.param == Execution::kSerial ? "Serial" : "Overlapped";
                         });

/// From its first update on, this run has only infinite losses.
Job exploding_job(const TempFolder& folder) {
  Job job = tiny_job(folder, tiny_llama());
  job.optimizer.lr = 1e30;
  return job;
}

TEST(NonFinite, StopEndsTheRunAtTheFirstBadStep) {
  const TempFolder folder;
  Job job = exploding_job(folder);
  job.train.on_nonfinite = OnNonFinite::kStop;
  const Ending ending = ending_of([&] { run(job); });
  EXPECT_EQ(ending.code, Errc::kNonFinite);
  EXPECT_THAT(ending.message, AllOf(HasSubstr("step 2"), HasSubstr("train.on_nonfinite is stop"),
                                    HasSubstr("optimizer.lr")));
  expect_nothing_left(job);
}

TEST(NonFinite, TooManySkipsInARowEndTheRun) {
  const TempFolder folder;
  Job job = exploding_job(folder);
  job.train.max_skips = 2;
  const Ending ending = ending_of([&] { run(job); });
  EXPECT_EQ(ending.code, Errc::kNonFinite);
  EXPECT_THAT(ending.message,
              AllOf(HasSubstr("2 skipped steps in a row"), HasSubstr("train.max_skips is 2")));
  expect_nothing_left(job);
}

TEST(NonFinite, SkipsBelowTheLimitLetTheRunFinish) {
  const TempFolder folder;
  Job job = exploding_job(folder);
  job.train.max_skips = 10;
  const Fingerprint print = run(job);
  EXPECT_EQ(print.skipped, (std::vector{false, true, true, true, true}));
  EXPECT_TRUE(fs::exists(fs::path(job.folder) / "final" / "model.safetensors"));
}

/// Only the files of final/ are written after the last step.
TEST(FinalWeights, AFileThatCannotGrowLeavesNoFinalFolder) {
  const TempFolder folder;
  for (const rlim_t room : {rlim_t{0}, rlim_t{100 << 10}}) {
    std::optional<test::FileSizeLimit> limit;
    Job job = nvme_job(folder, Execution::kOverlapped);
    job.on_step = [&](const data::StepRecord& record) {
      if (record.step == record.steps) limit.emplace(room);
    };
    fs::create_directories(job.folder);
    const Ending ending = ending_of([&] { make_session(job).run(); });
    ASSERT_TRUE(limit);
    limit.reset();
    EXPECT_EQ(ending.code, Errc::kIo);
    EXPECT_THAT(ending.message, AllOf(HasSubstr("model.safetensors"), HasSubstr("File too large")));
    expect_nothing_left(job);
  }
}

}  // namespace
}  // namespace sluice::train
