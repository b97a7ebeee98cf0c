/// One piece of work, timed until its times agree.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/cores.h"

namespace sluice::train {

struct Timing {
  /// The mean, since a run pays for its slow times, too; each counts as kMostOfOne times the median
  /// (of two in the middle the shorter) at most.
  double seconds = 0;
  /// How far the others lie apart once the slowest fifth is left out, over the median: one is late
  /// on every machine.
  double spread = 0;
};

inline constexpr double kMostOfOne = 2;

/// Of the seconds that one piece of work took, several times over.
Timing timing_of(std::vector<double> seconds);

/// A round is kRepeats times, or of work so short that these take less than kEnoughSeconds up to
/// kMostRepeats: a machine that others use, too, may be another one a moment later.
inline constexpr int kRepeats = 5;
inline constexpr int kMostRepeats = 15;
inline constexpr double kEnoughSeconds = 0.2;
inline constexpr double kMostSeconds = 0.5;  ///< of a round, then three times have to do
/// Of longer work a round is one time, the first of them two.
inline constexpr double kLongWork = 0.25;
inline constexpr double kLongerWork = 2;     ///< with its first: little of it is paid once only
inline constexpr double kLongestWork = 30;   ///< is done once: nobody knows how steady it is
inline constexpr double kLongestBeside = 8;  ///< of work that is looked at beside other work
inline constexpr int kRounds = 3;
inline constexpr double kAgreed = 0.1;      ///< a spread of no more needs no further round
inline constexpr double kMostSpread = 0.2;  ///< of more the machine is said to be busy

/// `once` does the work and gives its seconds. The first time pays for what only a first time pays,
/// and counts only where that is little. Where times lie too far apart there are more rounds, up to
/// kRounds; all of them count.
Timing settled(const std::function<double()>& once);

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
