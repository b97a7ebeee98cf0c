#include "engine/train/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>

#include "engine/base/clock.h"
#include "engine/base/machine.h"
#include "engine/base/median.h"

namespace sluice::train {
namespace {

constexpr double kMostShift = 0.02;

/// Of one time, when the work has been done until that is `enough`: asked with the seconds, and the
/// times, so far.
template <class Enough>
double seconds_of_one(const std::function<void()>& work, const std::optional<CpuQuota>& quota,
                      const Enough& enough) {
  int times = 0;
  const auto often = [&] {
    const Nanos begin = now_ns();
    do {
      work();
      ++times;
    } while (!enough(to_seconds(now_ns() - begin), times));
  };
  return seconds_of(often, quota) / times;
}

/// Of short work, as many times as are enough for a look at it.
std::vector<double> round_of(std::size_t repeats, const std::function<double()>& once) {
  constexpr std::size_t kFewest = 3;
  std::vector<double> seconds;
  double spent = 0;
  const auto most = [&]() -> std::size_t {
    if (spent >= kMostSeconds) return kFewest;
    return spent < kEnoughSeconds ? repeats : kRepeats;
  };
  while (seconds.size() < most()) spent += seconds.emplace_back(once());
  return seconds;
}

/// Says so at the end of its scope, however that comes.
class Over {
 public:
  explicit Over(std::atomic<bool>& flag) : flag_(flag) {}
  ~Over() { flag_ = true; }
  Over(const Over&) = delete;
  Over& operator=(const Over&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

Timing timing_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double median = seconds[(seconds.size() - 1) / 2];
  double sum = 0;
  for (const double s : seconds) sum += std::min(s, kMostOfOne * median);
  constexpr std::size_t kOneInSoMany = 5;
  const std::size_t n = seconds.size();
  const std::size_t late = n > 2 ? std::max<std::size_t>(n / kOneInSoMany, 1) : 0;
  const double last = seconds[n - 1 - late];
  return {sum / static_cast<double>(n), (last - seconds.front()) / median};
}

void Rounds::begin(const std::function<double()>& once) {
  const double first = once();
  is_long_ = first > kLongWork;
  is_longest_ = first > kLongestWork;
  if (first > kLongerWork) {
    add({first});
  } else {
    go_on(once);
  }
}

void Rounds::go_on(const std::function<double()>& once) {
  add(is_long_ ? std::vector{once()} : round_of(often_.repeats, once));
}

void Rounds::add(const std::vector<double>& round) {
  seconds_.insert(seconds_.end(), round.begin(), round.end());
  rounds_.push_back(timing_of(round).seconds);
}

bool Rounds::enough() const {
  const std::size_t rounds = rounds_.size();
  if (is_longest_ || rounds >= (is_long_ ? kRounds : often_.most)) return true;
  return rounds >= often_.fewest && seconds_.size() > 1 && timing().spread <= kAgreed;
}

Timing Rounds::timing() const {
  const Timing all = timing_of(seconds_);
  return {is_long_ ? all.seconds : median(rounds_), all.spread};
}

Timing settled(const std::function<double()>& once) {
  Rounds rounds(kTogether);
  for (rounds.begin(once); !rounds.enough();) rounds.go_on(once);
  return rounds.timing();
}

double total_of(const std::vector<Turn>& turns) {
  double total = 0;
  for (const Turn& turn : turns) total += turn.seconds();
  return total;
}

void settle(std::vector<Turn>& turns) {
  for (Turn& turn : turns) turn.round(turn.rounds);
  for (std::size_t round = 1; round < kApart.most; ++round) {
    const double total = total_of(turns);
    for (Turn& turn : turns) {
      const bool counts = matters(1, turn.seconds(), total);
      if (counts && !turn.rounds.enough()) turn.round(turn.rounds);
    }
  }
}

double sustained(double seconds, double processors, const std::optional<CpuQuota>& quota) {
  return quota ? std::max(seconds, processors / quota->cores) : seconds;
}

double seconds_of(const std::function<void()>& work, const std::optional<CpuQuota>& quota) {
  const Nanos begin = now_ns();
  const double used = processor_seconds();
  work();
  const double seconds = std::max(to_seconds(now_ns() - begin), 1e-9);
  return sustained(seconds, processor_seconds() - used, quota);
}

Beside beside(const std::function<void()>& first, const std::function<void()>& second,
              const std::optional<CpuQuota>& quota) {
  constexpr std::size_t kFewestRounds = 2;
  const auto enough = [](double seconds, int times) {
    return seconds >= kPairSeconds || times >= kPairTimes;
  };
  std::vector<double> firsts, seconds;
  do {
    std::atomic<bool> over = false;
    auto other = std::async(std::launch::async, [&] {
      return seconds_of_one(second, quota, [&](double, int) { return over.load(); });
    });
    {
      const Over when_first_is_done(over);
      firsts.push_back(seconds_of_one(first, quota, enough));
    }
    seconds.push_back(other.get());
  } while (firsts.size() < kFewestRounds ||
           (firsts.size() < kRounds && firsts.back() <= kLongWork));
  const Timing of_first = timing_of(std::move(firsts));
  return {of_first.seconds, timing_of(std::move(seconds)).seconds, of_first.spread};
}

bool matters(double spread, double seconds, double total) {
  return spread > kMostSpread && spread * seconds > kMostShift * total;
}

std::string describe(const std::vector<Unsteady>& unsteady) {
  if (unsteady.empty()) return {};
  std::string text;
  for (const auto& [what, spread] : unsteady) {
    text += fmt::format("{}{} {}by {:.0f}%", text.empty() ? "calibration: " : ", ", what,
                        text.empty() ? "varied " : "", 100 * spread);
  }
  return text +
         ": the machine or a drive is busy, or a quota of a cgroup is used up; the forecast may be "
         "off";
}

}  // namespace sluice::train
