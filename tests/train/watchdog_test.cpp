#include "engine/train/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/faults.h"

namespace sluice::train {
namespace {

using schedule::OpId;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kMinute = 60 * kSecond;

/// A clock that goes as far as the test says, with a look each second.
class PatienceTest : public testing::Test {
 protected:
  static WatchdogOptions allows(std::chrono::seconds limit) { return {.step = limit}; }

  void begin(std::uint32_t index) {
    executor::Running op;
    op.ref = {0, index};
    op.since = now_;
    running_.push_back(op);
  }
  /// Looks until an op is overdue, or for so many seconds.
  std::optional<Patience::Overdue> look_for(Patience& patience, Nanos seconds) {
    for (Nanos i = 0; i < seconds; ++i) {
      now_ += kSecond;
      if (auto overdue = patience.look(now_, running_)) return overdue;
    }
    return std::nullopt;
  }

  Nanos now_ = 5 * kMinute;
  std::vector<executor::Running> running_;
};

TEST_F(PatienceTest, AnOpMayRunForAsLongAsIsAllowedAndNoLonger) {
  Patience patience(allows(std::chrono::seconds(30)), 0, now_);
  EXPECT_FALSE(look_for(patience, 100));
  now_ += kSecond / 2;
  begin(3);
  now_ -= kSecond / 2;
  EXPECT_FALSE(look_for(patience, 30));
  begin(4);
  const auto overdue = look_for(patience, 1);
  ASSERT_TRUE(overdue);
  EXPECT_EQ(overdue->op.ref.index, 3U);
  EXPECT_EQ(overdue->ran, 30 * kSecond + kSecond / 2);
}

TEST_F(PatienceTest, ManyShortOpsAreNotALongOne) {
  Patience patience(allows(std::chrono::seconds(30)), 0, now_);
  for (std::uint32_t i = 0; i < 100; ++i) {
    running_.clear();
    begin(i);
    EXPECT_FALSE(look_for(patience, 20)) << i;
  }
}

TEST_F(PatienceTest, OfSeveralTheLongestIsOverdue) {
  for (const bool turned : {false, true}) {
    Patience patience(allows(std::chrono::seconds(10)), 0, now_);
    running_.clear();
    begin(1);
    EXPECT_FALSE(look_for(patience, 1));
    begin(0);
    if (turned) std::swap(running_[0], running_[1]);
    EXPECT_FALSE(look_for(patience, 9));
    now_ += 2 * kSecond;  // now it is both
    const auto overdue = patience.look(now_, running_);
    ASSERT_TRUE(overdue);
    EXPECT_EQ(overdue->op.ref.index, 1U);
  }
}

TEST_F(PatienceTest, TimeInWhichNobodyLookedCountsForSecondsOnly) {
  Patience patience(allows(std::chrono::seconds(30)), 0, now_);
  begin(0);
  EXPECT_FALSE(look_for(patience, 10));
  now_ += 600 * kMinute;  // stopped
  begin(1);               // before anybody looks again
  running_.back().since -= 300 * kMinute;
  EXPECT_FALSE(look_for(patience, 17));
  EXPECT_TRUE(look_for(patience, 10));
}

TEST_F(PatienceTest, AutoIsTwentyTimesTheLongestStepAndAtLeastTenMinutes) {
  Patience patience({}, 0, now_);
  EXPECT_EQ(patience.limit(), 10 * kMinute);
  const auto step = [&](Nanos seconds) {
    look_for(patience, seconds);
    patience.step_took(now_, seconds * kSecond);
  };
  step(20);
  EXPECT_EQ(patience.limit(), 10 * kMinute);
  step(90);
  EXPECT_EQ(patience.limit(), 30 * kMinute);
  step(60);
  EXPECT_EQ(patience.limit(), 30 * kMinute);
}

TEST_F(PatienceTest, AutoTakesTheSimulatedStepUntilOneIsLonger) {
  Patience patience({}, 120, now_);
  EXPECT_EQ(patience.limit(), 40 * kMinute);
  look_for(patience, 300);
  patience.step_took(now_, 180 * kSecond);  // the rest was the first values
  EXPECT_EQ(patience.limit(), 60 * kMinute);
  EXPECT_GE(Patience({}, 1e30, now_).limit(), 1'000'000 * kMinute);
}

TEST_F(PatienceTest, AStepInWhichTheProcessWasStoppedIsNotALongOne) {
  Patience patience({}, 0, now_);
  for (int i = 0; i < 3; ++i) {
    look_for(patience, 10);
    now_ += 600 * kMinute;
    look_for(patience, 30);
    patience.step_took(now_, 600 * kMinute + 40 * kSecond);
    EXPECT_LE(patience.limit(), 20 * 45 * kSecond);
    EXPECT_GE(patience.limit(), 20 * 40 * kSecond);
  }
}

/// Holds the ops of a kind in programs of steps until they are let go, but for the first segments'.
class Hanger : public executor::Handler {
 public:
  Hanger(executor::Handler& inner, OpId id) : inner_(inner), id_(id) {}
  Ticket start(const executor::OpContext& context) override {
    const bool hangs = schedule::id_of(context.op) == id_ &&
                       Tag::unpack(context.tag).kind == Tag::Kind::kStep &&
                       context.op.where.segment >= 2;
    if (hangs) hang_in_this_op();
    return inner_.start(context);
  }
  void freed(const prefetch::Freed& freed) override { inner_.freed(freed); }
  void let_go() {
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
    }
    changed_.notify_all();
  }

 private:
  [[gnu::noinline]] void hang_in_this_op() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return gone_; });
  }

  executor::Handler& inner_;
  const OpId id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool gone_ = false;
};

class WatchdogTest : public testing::TestWithParam<Execution> {
 protected:
  /// A run in which all ops of a kind hang until the watchdog has spoken, unless that ends it.
  Job hanging(OpId id) {
    Job job = nvme_job(folder_, GetParam());
    // Other ops take milliseconds; what waits for memory or its turn does not count.
    job.watchdog.step = std::chrono::seconds(2);
    job.hooks.wrap_handler = [this, id](executor::Handler& inner, const memory::SlotMemory&) {
      auto hanger = std::make_unique<Hanger>(inner, id);
      hanger_ = hanger.get();
      return hanger;
    };
    fs::create_directories(job.folder);
    return job;
  }

  TempFolder folder_;
  Hanger* hanger_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Drivers, WatchdogTest,
                         testing::Values(Execution::kSerial, Execution::kOverlapped),
                         [](const auto& info) {
                           return info.param == Execution::kSerial ? "Serial" : "Overlapped";
                         });

TEST_P(WatchdogTest, NamesTheOpThatHangsItsFileAndWhereEveryThreadIs) {
  Job job = hanging(OpId::kReadState);
  std::vector<Error> told;
  job.on_hang = [&](const Error& hang) {
    told.push_back(hang);
    hanger_->let_go();
  };
  testing::internal::CaptureStderr();
  const Outcome outcome = make_session(job).run();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome, Outcome::kDone);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].code, Errc::kWatchdog);
  const std::string name = "'read state segment [2-9] chunk [0-9]+' of the program 'step', step 1";
  EXPECT_THAT(told[0].what(),
              AllOf(ContainsRegex("the op " + name + " has run for [0-9]+ s on the lane nvme-read"),
                    HasSubstr(folder_ / "run/nvme/sluice-"),
                    ContainsRegex(": [0-9]+ bytes at offset [1-9][0-9]*;"),
                    HasSubstr("watchdog.step allows 2 s")));
  EXPECT_THAT(said, ContainsRegex("what runs:\n  nvme-read: " + name + ", [0-9]+ s\n"));
  EXPECT_THAT(said, ContainsRegex("\n  .*Hanger::hang_in_this_op\\(\\)"));
}

TEST_P(WatchdogTest, AnOpOfTheComputeLaneIsNamedToo) {
  Job job = hanging(OpId::kLayerForward);
  std::string told;
  job.on_hang = [&](const Error& hang) {
    told = hang.what();
    hanger_->let_go();
  };
  testing::internal::CaptureStderr();
  make_session(job).run();
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      told,
      ContainsRegex(
          "the op 'layer forward segment [0-9]+ micro-batch 0' of the program 'step', step 1 has "
          "run for [0-9]+ s on the lane compute; watchdog"));
}

TEST(Watchdog, ARunInWhichNothingHangsEndsAsEver) {
  const TempFolder folder;
  Job job = nvme_job(folder, Execution::kOverlapped);
  job.data.valid = job.data.train;
  job.on_hang = [](const Error& hang) { ADD_FAILURE() << hang.what(); };
  fs::create_directories(job.folder);
  EXPECT_EQ(make_session(job).run(), Outcome::kDone);
}

}  // namespace
}  // namespace sluice::train
