/// One piece of work, timed until its times agree.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/cores.h"

namespace sluice::train {

struct Timing {
  double seconds = 0;
  /// How far the others lie apart once the slowest fifth is left out, over the median: one is late
  /// on every machine.
  double spread = 0;
};

inline constexpr double kMostOfOne = 2;

/// Of the seconds that one piece of work took, several times over: the mean, since a run pays for
/// its slow times, too; each counts as kMostOfOne times the median (of two in the middle the
/// shorter) at most.
Timing timing_of(std::vector<double> seconds);

/// A round is kRepeats times, or of short work some more (Often::repeats).
inline constexpr std::size_t kRepeats = 5;
inline constexpr double kEnoughSeconds = 0.2;
inline constexpr double kMostSeconds = 0.5;  ///< of a round, then three times have to do
/// Of longer work a round is one time, and two are the fewest.
inline constexpr double kLongWork = 0.25;
inline constexpr double kLongerWork = 2;     ///< with its first: little of it is paid once only
inline constexpr double kLongestWork = 30;   ///< is done once: nobody knows how steady it is
inline constexpr double kLongestBeside = 8;  ///< of work that is looked at beside other work
inline constexpr std::size_t kRounds = 3;    ///< of such work at most
inline constexpr double kAgreed = 0.1;       ///< a spread of no more needs no further round
inline constexpr double kMostSpread = 0.2;   ///< of more the machine is said to be busy

struct Often {
  std::size_t repeats;       ///< in a round, at most, while these take less than kEnoughSeconds
  std::size_t fewest, most;  ///< rounds
};
/// One round behind another; or with other work in between, for a machine that others use, too,
/// may be another one a second later.
inline constexpr Often kTogether{15, 1, kRounds}, kApart{kRepeats, 2, 5};

/// Times of one work, which `once` does and gives the seconds of.
class Rounds {
 public:
  explicit Rounds(const Often& often) : often_(often) {}
  /// The first time pays for what only a first time pays, and counts only where that is little.
  void begin(const std::function<double()>& once);
  /// Behind another, with nothing in between.
  void go_on(const std::function<double()>& once);
  bool enough() const;
  /// Of short work the median of what rounds are by themselves: most steps do not meet the moment
  /// in which a machine is slow. Of long work, which does, the mean. And how far all lie apart.
  Timing timing() const;

 private:
  void add(const std::vector<double>& round);

  Often often_;
  std::vector<double> seconds_, rounds_;
  bool is_long_ = false, is_longest_ = false;
};

/// As many rounds together as are enough.
Timing settled(const std::function<double()>& once);

/// One of several works that are timed by turns.
struct Turn {
  double times = 1;                    ///< that a step has it
  std::function<void(Rounds&)> round;  ///< has them begin one
  Rounds rounds{kApart};

  double seconds() const { return times * rounds.timing().seconds; }
};
double total_of(const std::vector<Turn>& turns);

/// A round of each, then of those that have not enough and are more than next to nothing of all.
void settle(std::vector<Turn>& turns);

/// What work takes that goes on for long. Processes that use up a quota of their cgroup stop until
/// its next period, which one short time may not meet. `processors`: seconds used of them in it.
double sustained(double seconds, double processors, const std::optional<CpuQuota>& quota);

/// The same, of work that is done and timed here.
double seconds_of(const std::function<void()>& work, const std::optional<CpuQuota>& quota);

/// Two works at once, over and over, each on a thread: the seconds that one time of each takes.
struct Beside {
  double first = 0, second = 0;
  double spread = 0;  ///< of the first's, as above
};
/// A round lasts until the first has been done for so long, or so often.
inline constexpr double kPairSeconds = 0.15;
inline constexpr int kPairTimes = 100;

/// Of kRounds, or of two where the first takes more than kLongWork in the second of them.
/// The second work should be short beside the first. What either throws comes out when both have
/// ended. Both are sustained.
Beside beside(const std::function<void()>& first, const std::function<void()>& second,
              const std::optional<CpuQuota>& quota);

/// Work whose times did not agree.
struct Unsteady {
  std::string what;
  double spread = 0;
};
/// Whether such a spread of the times of work that is `seconds` of `total` matters: it moves that
/// by a fiftieth.
bool matters(double spread, double seconds, double total);

/// For people; empty where nothing was unsteady:
/// "calibration: copies varied by 40%, adam by 25%: the machine or a drive is busy, or a quota of a
/// cgroup is used up; the forecast may be off"
std::string describe(const std::vector<Unsteady>& unsteady);

}  // namespace sluice::train
