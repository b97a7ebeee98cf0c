/// What a run does when the drive fails under it: it ends with an error that says what and where,
/// and leaves no final weights behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/support/extent.h"
#include "tests/support/occurrences.h"
#include "tests/train/faults.h"

namespace sluice::train {
namespace {

using schedule::OpId;
using test::FaultCounts;
using test::Faults;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// So many requests write its first values, or read its final ones.
std::uint64_t state_chunks(const Job& job) {
  const Session session(job);
  std::uint64_t chunks = 0;
  for (const auto& op : session.plan().programs.final->ops()) {
    chunks += schedule::id_of(op) == OpId::kReadState;
  }
  return chunks;
}

class DriveFaults : public testing::TestWithParam<Execution> {
 protected:
  Job job() const { return nvme_job(folder_, GetParam()); }

  /// Serial, every request in its turn. Overlapped, the n-th is another one from run to run, so
  /// some of them say as much.
  static std::uint64_t stride() {
    return GetParam() == Execution::kSerial ? test::by_extent(1, 7, 31) : some();
  }
  /// Of faults that end a run as others do that are tried at every request.
  static std::uint64_t some() { return test::by_extent(3, 7, 31); }

  /// Requests of an undisturbed run: `chunks` writes of the initial state, then steps, then
  /// `chunks` reads for the final weights.
  void count_requests() {
    Job quiet = job();
    chunks_ = state_chunks(quiet);
    const auto seam = inject(quiet, {});
    run(quiet);
    requests_ = (*seam)->counts().requests;
    ASSERT_GT(chunks_, 1U);
    ASSERT_EQ(requests_, chunks_ * (1 + 2 * 2 + 1));
  }

  Ending run_with(const Faults& faults) {
    Job disturbed = job();
    const auto seam = inject(disturbed, faults);
    Ending ending = ending_of([&] { run(disturbed); });
    EXPECT_GT((*seam)->counts().failures, 0U);
    expect_nothing_left(disturbed);
    return ending;
  }

  /// File, offset and op, with what the op names behind its segment.
  auto names_its_place(const std::string& behind = " chunk [0-9]+") const {
    return AllOf(HasSubstr(folder_ / "run/nvme/sluice-"), HasSubstr("at offset "),
                 ContainsRegex("in the op '(read|write|save)[a-z ]* segment [0-9]+" + behind +
                               "' of the program '"));
  }

  /// Requests of the run in their turn, from the last, a read; a fault of reads leaves those that
  /// are writes alone.
  void disturb_each_read(const std::function<Faults(std::uint64_t)>& faults_at,
                         const std::string& what) {
    count_requests();
    std::uint64_t reads = 0;
    for (std::uint64_t i = 0; i < requests_; i += stride()) {
      const std::uint64_t n = requests_ - 1 - i;
      SCOPED_TRACE(testing::Message() << "request " << n << " of " << requests_);
      Job disturbed = job();
      disturbed.aio.verify = nvme::Verify::kTrue;
      const auto seam = inject(disturbed, faults_at(n));
      const Ending ending = ending_of([&] { run(disturbed); });
      if ((*seam)->counts().failures == 0) {  // a write
        EXPECT_EQ(ending.code, std::nullopt);
        continue;
      }
      ++reads;
      expect_nothing_left(disturbed);
      EXPECT_EQ(ending.code, Errc::kIo);
      EXPECT_THAT(
          ending.message,
          AllOf(HasSubstr(what), HasSubstr("in the op 'read state segment "), names_its_place()));
    }
    // Two steps, and the final weights. Overlapped, the n-th request may be a read in one run and a
    // write in another.
    if (stride() == 1) {
      EXPECT_EQ(reads, chunks_ * 3);
    }
    EXPECT_GT(reads, chunks_ / stride());
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
    EXPECT_THAT(ending.message, AllOf(HasSubstr("errno 5"), HasSubstr("bytes"), names_its_place()));
  }
}

/// Nothing makes use of the bytes, so the run's error is its own.
TEST_P(DriveFaults, AFlippedBitEndsTheRunWithFileOffsetAndOp) {
  disturb_each_read([](std::uint64_t n) { return Faults{.flip_request = n}; },
                    "not what was written");
}

TEST_P(DriveFaults, AFileThatEndsTooEarlyEndsTheRun) {
  disturb_each_read([](std::uint64_t n) { return Faults{.end_request = n}; }, "the file ends here");
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
    for (std::uint64_t n = 0; n < requests; n += some()) {
      SCOPED_TRACE(testing::Message() << (weights ? "weights" : "activations") << ", request " << n
                                      << " of " << requests);
      Job disturbed = quiet;
      const auto seam = inject(disturbed, {.fail_request = n});
      const Ending ending = ending_of([&] { run(disturbed); });
      EXPECT_GT((*seam)->counts().failures, 0U);
      EXPECT_EQ(ending.code, Errc::kIo);
      EXPECT_THAT(ending.message, AllOf(HasSubstr("errno 5"), names_its_place("[-a-z0-9 ]*")));
      expect_nothing_left(disturbed);
    }
  }
}

TEST_P(DriveFaults, ARequestThatNeverEndsEndsTheRun) {
  count_requests();
  Job disturbed = job();
  disturbed.aio.timeout = std::chrono::milliseconds(50);
  for (std::uint64_t n = 0; n < requests_; n += some()) {
    SCOPED_TRACE(testing::Message() << "request " << n << " of " << requests_);
    auto seam = inject(disturbed, {.never_request = n});
    Ending ending = ending_of([&] { run(disturbed); });
    while ((*seam)->counts().failures == 0 && ending.code == Errc::kWatchdog) {
      disturbed.aio.timeout *= 2;  // the drive itself is slower
      seam = inject(disturbed, {.never_request = n});
      ending = ending_of([&] { run(disturbed); });
    }
    EXPECT_GT((*seam)->counts().failures, 0U);
    expect_nothing_left(disturbed);
    EXPECT_EQ(ending.code, Errc::kWatchdog);
    EXPECT_THAT(ending.message,
                AllOf(ContainsRegex("has not come back for [0-9.]+ s"), names_its_place()));
  }
}

TEST_P(DriveFaults, AFullDiskUnderTheStateIsNamed) {
  count_requests();
  for (std::uint64_t n = 0; n < requests_; n += some()) {
    SCOPED_TRACE(testing::Message() << "request " << n << " of " << requests_);
    const Ending ending = run_with({.fail_request = n, .fail_errno = ENOSPC});
    EXPECT_EQ(ending.code, Errc::kIo);
    EXPECT_THAT(ending.message,
                AllOf(HasSubstr("errno 28"), HasSubstr("is full"), names_its_place()));
  }
}

/// On every engine, and each request of the run with all of it: every transfer of more than a unit
/// is short, and most are interrupted.
TEST_P(DriveFaults, ShortInterruptedAndLateTransfersDoNotShow) {
  const Fingerprint expected = run(job());
  for (const auto engine : {nvme::Engine::kAuto, nvme::Engine::kLibaio, nvme::Engine::kThreads}) {
    Job disturbed = job();
    disturbed.aio.engine = engine;
    const auto seam = inject(disturbed, {.seed = 5,
                                         .short_transfers = 1,
                                         .interrupts = 0.5,
                                         .reorder = 3,
                                         .delay = std::chrono::microseconds(200)});
    EXPECT_EQ(run(disturbed), expected);
    const FaultCounts counts = (*seam)->counts();
    EXPECT_GE(counts.shorts, counts.requests);
    EXPECT_GT(counts.interrupts, counts.requests);
  }
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

/// As when its cache is full. Rates given by hand: of a drive that is slower than any from the
/// start, so that what it showed in its first steps counts, and no step is late.
TEST(SlowDrive, ThatBecomesOneInARunIsSaidOnce) {
  const TempFolder folder;
  Job job = nvme_job(folder, Execution::kOverlapped);
  constexpr std::int64_t kQuick = 10;
  job.train.steps = 2 * kQuick;
  job.rates = plan::Rates();
  job.rates->nvme_read = job.rates->nvme_write = {1e3, 1e3};
  const auto requests_until = [chunks = state_chunks(job)](std::int64_t step) {
    return chunks * static_cast<std::uint64_t>(1 + 2 * step);  // the first values, then both ways
  };
  const auto said_of = [&](const Faults& faults) {
    Job faulty = job;
    const auto seam = inject(faulty, faults);
    std::string said = said_by(faulty);
    EXPECT_GT((*seam)->counts().requests, requests_until(*job.train.steps));
    return said;
  };
  const char* const slow = "GB/s while it is busy, before";
  // Requests of these take a hundredth of that: a drive that others use, too, does not show.
  EXPECT_THAT(said_of({.slow = std::chrono::milliseconds(3)}), Not(HasSubstr(slow)));
  const std::string said =
      said_of({.slow_from = requests_until(kQuick), .slow = std::chrono::milliseconds(5)});
  EXPECT_EQ(test::occurrences(said, slow), 1U) << said;
  EXPECT_THAT(said, Not(HasSubstr("more than the forecast")));
}

INSTANTIATE_TEST_SUITE_P(Drivers, DriveFaults,
                         testing::Values(Execution::kSerial, Execution::kOverlapped),
                         [](const auto& info) {
                           return info.param == Execution::kSerial ? "Serial" : "Overlapped";
                         });

}  // namespace
}  // namespace sluice::train
