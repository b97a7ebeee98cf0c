#include "engine/train/timing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/machine.h"

namespace sluice::train {
namespace {

/// What work takes, by script; of a busy machine, then of a quiet one.
class Script {
 public:
  explicit Script(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  double operator()() { return seconds_.at(at_++); }
  Timing settled() { return train::settled(std::ref(*this)); }
  std::size_t times() const { return at_; }

 private:
  std::vector<double> seconds_;
  std::size_t at_ = 0;
};

TEST(Timing, IsTheMeanWithoutTheFirstAndForgivesOneThatIsLate) {
  Script quiet({0.09, 0.055, 0.05, 0.2, 0.0525, 0.05});
  const Timing timing = quiet.settled();
  EXPECT_DOUBLE_EQ(timing.seconds, (0.05 + 0.05 + 0.0525 + 0.055 + 2 * 0.0525) / 5);
  EXPECT_DOUBLE_EQ(timing.spread, (0.055 - 0.05) / 0.0525);
  EXPECT_EQ(quiet.times(), 6U);
}

/// Half of the time a machine is a third slower: so is half of a run.
TEST(Timing, OfAMachineOfTwoRatesIsBetweenThem) {
  const Timing timing = timing_of({0.4, 0.3, 0.3, 0.4, 0.3, 0.4});
  EXPECT_DOUBLE_EQ(timing.seconds, 0.35);
  EXPECT_DOUBLE_EQ(timing.spread, (0.4 - 0.3) / 0.3);
}

/// Of fifteen three may be late.
TEST(Timing, OfShortWorkIsOfMoreTimes) {
  std::vector<double> seconds(9, 1e-3);
  for (const double s : {1.01e-3, 8e-3, 1.02e-3, 9e-3, 1.01e-3, 7e-3, 1.02e-3}) {
    seconds.push_back(s);
  }
  Script quiet(seconds);
  const Timing timing = quiet.settled();
  EXPECT_DOUBLE_EQ(timing.seconds, (8 * 1e-3 + 2 * (1.01e-3 + 1.02e-3) + 3 * 2e-3) / 15);
  EXPECT_DOUBLE_EQ(timing.spread, (1.02e-3 - 1e-3) / 1e-3);
  EXPECT_EQ(quiet.times(), 1U + kTogether.repeats);
  Script enough({0.09, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03});
  EXPECT_DOUBLE_EQ(enough.settled().seconds, 0.03);
  EXPECT_EQ(enough.times(), 8U) << "0.21 s without the first";
}

TEST(Timing, ThatDoesNotAgreeIsOfMoreRoundsWhichAllCount) {
  Script busy({0.06, 0.06, 0.06, 0.06, 0.09, 0.09, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06});
  const Timing timing = busy.settled();
  EXPECT_DOUBLE_EQ(timing.seconds, (8 * 0.06 + 2 * 0.09) / 10);
  EXPECT_DOUBLE_EQ(timing.spread, 0);
  EXPECT_EQ(busy.times(), 1U + 2U * kRepeats);
}

TEST(Timing, ThatNeverAgreesIsOfThreeRounds) {
  std::vector<double> seconds{0.05};
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (const double s : {0.05, 0.05, 0.06, 0.06, 0.06}) seconds.push_back(s);
  }
  seconds.push_back(0.05);
  Script busy(seconds);
  const Timing timing = busy.settled();
  EXPECT_DOUBLE_EQ(timing.seconds, (6 * 0.05 + 9 * 0.06) / 15);
  EXPECT_DOUBLE_EQ(timing.spread, (0.06 - 0.05) / 0.06);
  EXPECT_EQ(busy.times(), 1U + kRounds * kRepeats);
}

TEST(Timing, OfTheLongestWorkIsItsFirst) {
  Script longest({31, 1});
  EXPECT_DOUBLE_EQ(longest.settled().seconds, 31);
  EXPECT_EQ(longest.times(), 1U);
}

TEST(Timing, OfLongerWorkTheFirstCountsToo) {
  Script quiet({2.2, 2.4, 1});
  const Timing steady = quiet.settled();
  EXPECT_DOUBLE_EQ(steady.seconds, 2.3);
  EXPECT_DOUBLE_EQ(steady.spread, (2.4 - 2.2) / 2.2);
  Script busy({2.5, 4, 2.6, 1});
  EXPECT_DOUBLE_EQ(busy.settled().seconds, (2.5 + 4 + 2.6) / 3);
  EXPECT_EQ(busy.times(), 3U);
}

TEST(Timing, OfLongWorkIsOfTwoOrOfThreeWhereTheyDoNotAgree) {
  Script quiet({0.8, 0.33, 0.31, 0.2});
  const Timing steady = quiet.settled();
  EXPECT_DOUBLE_EQ(steady.seconds, 0.32);
  EXPECT_DOUBLE_EQ(steady.spread, (0.33 - 0.31) / 0.31);
  EXPECT_EQ(quiet.times(), 3U);
  Script never({0.8, 0.9, 0.7, 0.6, 0.1});
  const Timing all = never.settled();
  EXPECT_DOUBLE_EQ(all.seconds, (0.9 + 0.7 + 0.6) / 3);
  EXPECT_DOUBLE_EQ(all.spread, (0.7 - 0.6) / 0.7);
  EXPECT_EQ(never.times(), 1U + kRounds);
}

/// A machine that is slow for a moment is so for one round; it is the others that count.
TEST(Timing, OfRoundsApartIsTheMedianOfThemWithoutTheFirstTimeOfEach) {
  const auto round_of = [](double seconds) {
    std::vector<double> times(1 + kRepeats, seconds);
    times.front() = 0.2;
    return Script(times);
  };
  Rounds rounds(kApart);
  Script quiet = round_of(0.05), busy = round_of(0.07), after = round_of(0.052);
  rounds.begin(std::ref(quiet));
  EXPECT_FALSE(rounds.enough()) << "nothing tells it from another machine";
  rounds.begin(std::ref(busy));
  EXPECT_DOUBLE_EQ(rounds.timing().seconds, 0.06);
  EXPECT_DOUBLE_EQ(rounds.timing().spread, (0.07 - 0.05) / 0.05);
  EXPECT_FALSE(rounds.enough());
  rounds.begin(std::ref(after));
  EXPECT_DOUBLE_EQ(rounds.timing().seconds, 0.052);
  for (std::size_t round = 3; round < kApart.most; ++round) {
    EXPECT_FALSE(rounds.enough());
    Script more = round_of(0.06);
    rounds.begin(std::ref(more));
  }
  EXPECT_TRUE(rounds.enough());
  EXPECT_EQ(quiet.times(), 1 + kRepeats);
}

TEST(Timing, OfRoundsApartIsOfTwoWhereTheyAgree) {
  Rounds rounds(kApart);
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(rounds.enough());
    rounds.begin(Script(std::vector<double>(1 + kRepeats, 0.01)));
  }
  EXPECT_TRUE(rounds.enough());
  Rounds longest(kApart);
  longest.begin(Script({31}));
  EXPECT_TRUE(longest.enough()) << "nobody waits for another";
}

TEST(Timing, ByTurnsIsOfAsManyRoundsAsEachNeeds) {
  std::string order;
  const auto takes = [&order](char name, double seconds, double more) {
    return [=, &order](Rounds& rounds) mutable {
      order += name;
      rounds.begin([&] { return seconds; });
      seconds += more;
    };
  };
  std::vector<Turn> turns;
  turns.push_back({6, takes('a', 0.01, 0.002)});   // never agrees
  turns.push_back({1, takes('b', 0.05, 0.0001)});  // does
  turns.push_back({1, takes('c', 0.001, 0.01)});   // a hundredth of all
  turns.push_back({0.1, takes('d', 0.1, 0.005)});  // does, and is little, but not next to nothing
  settle(turns);
  EXPECT_EQ(order, "abcdabdaaa");
  EXPECT_DOUBLE_EQ(turns[0].seconds(), 6 * 0.014);
  EXPECT_DOUBLE_EQ(total_of(turns), 6 * 0.014 + 0.05005 + 0.001 + 0.1 * 0.1025);
}

TEST(Timing, OfRatherLongWorkIsOfThreeAndTriedAgainToo) {
  Script quiet({0.2, 0.18, 0.2, 0.19, 0.1});
  EXPECT_DOUBLE_EQ(quiet.settled().seconds, 0.19);
  EXPECT_EQ(quiet.times(), 4U);
  Script busy({0.2, 0.2, 0.24, 0.23, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2});
  EXPECT_DOUBLE_EQ(busy.settled().seconds, 0.2) << "as two of its three rounds";
  EXPECT_EQ(busy.times(), 10U);
}

/// 4 seconds of processors take 8 where a cgroup gives half of one.
TEST(Timing, UnderAQuotaIsWhatTheProcessorsThatItTookAreGivenIn) {
  const CpuQuota half{0.5, "/jobs", "cpu.max"};
  EXPECT_DOUBLE_EQ(sustained(4, 4, half), 8);
  EXPECT_DOUBLE_EQ(sustained(9, 4, half), 9) << "it was stopped, or waited for something else";
  EXPECT_DOUBLE_EQ(sustained(4, 8, std::nullopt), 4);
  const auto works = [] {
    const double begin = processor_seconds();
    while (processor_seconds() - begin < 2.5e-3) {
    }
  };
  const CpuQuota thousandth{1e-3, "/jobs", "cpu.max"};
  EXPECT_GE(seconds_of(works, thousandth), 2);
  const Beside both = beside(works, works, thousandth);
  EXPECT_GE(both.first, 2);
  EXPECT_GE(both.second, 2);
}

TEST(Timing, OfAMachineThatIsBusyIsSaidOnce) {
  EXPECT_EQ(describe({}), "");
  EXPECT_EQ(describe({{"copies", 0.4}, {"adam of the host", 0.25}}),
            "calibration: copies varied by 40%, adam of the host by 25%: the machine or a "
            "drive is busy, or a quota of a cgroup is used up; the forecast may be off");
}

TEST(Timing, ASpreadMattersByWhatItMovesOfAll) {
  EXPECT_TRUE(matters(0.5, 1, 10));
  EXPECT_FALSE(matters(0.5, 0.1, 10)) << "of work that is next to nothing";
  EXPECT_FALSE(matters(kMostSpread, 10, 10)) << "that every machine has";
}

TEST(Beside, HasBothDoneAtOnce) {
  std::atomic<bool> in_first = false;
  std::atomic<int> firsts = 0, at_once = 0;
  const Beside both = beside(
      [&] {
        ++firsts;
        in_first = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        in_first = false;
      },
      [&] { at_once += in_first ? 1 : 0; }, std::nullopt);
  EXPECT_GE(both.first, 1e-3);
  EXPECT_GT(both.second, 0);
  EXPECT_GT(firsts, 0);
  EXPECT_GT(at_once, 0);
}

/// The first round met something else, for far longer than a busy machine makes the second one
/// late.
TEST(Beside, LooksTwiceAtWorkThatIsLong) {
  int firsts = 0;
  const Beside both = beside(
      [&] {
        const double seconds = kLongWork * (++firsts == 1 ? 12 : 1.1);
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      },
      [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, std::nullopt);
  EXPECT_EQ(firsts, 2);
  EXPECT_LT(both.first, 6 * kLongWork) << "one that is late hardly counts";
  EXPECT_GT(both.spread, kMostSpread);
}

TEST(Beside, EndsWithWhatEitherThrows) {
  const auto throws = [] { throw Error(Errc::kIo, "broken"); };
  EXPECT_THROW(beside(
                   throws, [] {}, std::nullopt),
               Error);
  EXPECT_THROW(beside([] {}, throws, std::nullopt), Error);
}

}  // namespace
}  // namespace sluice::train
