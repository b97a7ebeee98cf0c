#include "nvme/speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "engine/base/clock.h"
#include "tests/support/temp_folder.h"

namespace sluice::nvme {
namespace {

TEST(Speed, OfAPathIsWhatTheLookMovedInItsTimeAndLeavesNothing) {
  const test::TempFolder folder;
  const Nanos begin = now_ns();
  const std::vector<Speed> speeds = look_at({folder / "not/yet"}, {});
  const double look_s = to_seconds(now_ns() - begin);
  ASSERT_EQ(speeds.size(), 1U);
  for (const Rate& rate : {speeds[0].read, speeds[0].write}) {
    EXPECT_GT(rate.alone, static_cast<double>(kLookedAt) / look_s);
    if (rate.together > 0) {
      EXPECT_GE(rate.together, rate.alone);
    }
  }
  EXPECT_GT(speeds[0].overlap, 0);
  EXPECT_LE(speeds[0].overlap, 2);
  EXPECT_TRUE(folder.empty());
}

TEST(Speed, IsLookedAtBesideWhatGoesOnInARunAndNoLonger) {
  const test::TempFolder folder;
  std::atomic<int> times = 0;
  look_at({folder / ""}, {}, 0, [&] { ++times; });
  const int meanwhile = times;
  EXPECT_GT(meanwhile, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(times, meanwhile);
}

/// Writes go the slower the longer it lasts: half as fast after each second, down to 20 MB/s.
class Tiring final : public KernelSeam {
 public:
  Bytes ask(const Request& piece) override {
    if (piece.op == Op::kWrite) {
      const std::lock_guard one_at_a_time(mutex_);
      const double rate = std::max(300e6 * std::exp2(-to_seconds(now_ns() - begin_)), 20e6);
      std::this_thread::sleep_for(
          std::chrono::duration<double>(static_cast<double>(piece.bytes) / rate));
      last_ = to_seconds(now_ns() - begin_);
    }
    return piece.bytes;
  }
  std::int64_t answer(const Request&, std::int64_t result) override { return result; }
  /// Seconds, from the beginning to the last write.
  double wrote_for() const { return last_; }

 private:
  const Nanos begin_ = now_ns();
  std::mutex mutex_;
  std::atomic<double> last_ = 0;
};

TEST(Speed, OfADriveThatDoesNotHoldStillIsLookedAtAgainAndItsSpreadIsTold) {
  const test::TempFolder folder;
  const Options options{.engine = Engine::kThreads, .direct = Direct::kFalse};
  const auto tiring = std::make_shared<Tiring>();
  const Speed drive = look_at({folder / ""}, options, 9 * kLookedAt, {}, tiring).front();
  EXPECT_GT(drive.spread, kSteady);
  EXPECT_GT(tiring->wrote_for(), 2.5) << "one look ends after 1.6 s";
  EXPECT_EQ(together({{{1, 1}, {1, 1}, 1, 0.5}, {{1, 1}, {1, 1}, 1, 0.3}}).spread, 0.5);
}

TEST(Speed, OfALookThatIsTooShortIsNotCalledUnsteady) {
  const test::TempFolder folder;
  const Options options{.engine = Engine::kThreads, .direct = Direct::kFalse};
  EXPECT_EQ(look_at({folder / ""}, options, 0, {}, std::make_shared<Tiring>()).front().spread, 0);
}

TEST(Speed, OfBothDirectionsIsThatOfAByteThereAndBack) {
  const Speed drive{{3e9, 6e9}, {2e9, 3e9}};
  EXPECT_DOUBLE_EQ(drive.both(), 2e9);
  const Speed slow{{3e6, 0}, {6e6, 0}};
  EXPECT_DOUBLE_EQ(slow.both(), 2e6);
  const Speed some{{3e9, 6e9}, {2e9, 3e9}, 1.2};
  EXPECT_DOUBLE_EQ(some.both(), 2.4e9);
  const Speed apart{{3e9, 6e9}, {2e9, 3e9}, 2};
  EXPECT_DOUBLE_EQ(apart.both(), 3e9) << "the slower direction alone";
}

TEST(Speed, OfSeveralPathsIsTheirSum) {
  const Speed all = together({{{1, 2}, {3, 4}}, {{5, 0}, {6, 0}}});
  EXPECT_DOUBLE_EQ(all.read.alone, 1 + 5);
  EXPECT_DOUBLE_EQ(all.read.together, 2 + 5);
  EXPECT_DOUBLE_EQ(all.write.together, 4 + 6);
  // The second moves three times as much.
  EXPECT_DOUBLE_EQ(together({{{1, 2}, {1, 2}, 1}, {{1, 3}, {1, 3}, 2}}).overlap, 1.75);
}

TEST(Speed, OfADriveIsSharedByItsPaths) {
  const test::TempFolder folder;
  const std::vector<Speed> two = look_at({folder / "a", folder / "b"}, {});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_GT(two[0].read.alone, 0);
  EXPECT_EQ(two[0].read.alone, two[1].read.alone);  // one look, not two alike
  EXPECT_EQ(two[0].read.together, two[1].read.together);
  EXPECT_EQ(two[0].write.alone, two[1].write.alone);
}

}  // namespace
}  // namespace sluice::nvme
