#include "engine/train/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace sluice::train {

Timing timing_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  const std::size_t slowest = seconds.size() - 1;
  const double last = seconds[slowest > 1 ? slowest - 1 : slowest];
  return {median, (last - seconds.front()) / median};
}

Timing settled(const std::function<double()>& once) {
  constexpr std::size_t kFewest = 3;
  double spent = once();
  if (spent > kLongestWork) return {spent, 0};
  if (spent > kLongWork) return {std::min(spent, once()), 0};
  Timing best;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> seconds;
    while (seconds.size() < kRepeats && (seconds.size() < kFewest || spent < kMostSeconds)) {
      spent += seconds.emplace_back(once());
    }
    const Timing timing = timing_of(std::move(seconds));
    if (round == 0 || timing.spread < best.spread) best = timing;
    if (best.spread <= kMostSpread || spent >= kMostSeconds) break;
  }
  return best;
}

std::string describe(const std::vector<Unsteady>& unsteady) {
  if (unsteady.empty()) return {};
  std::string text;
  for (const auto& [what, spread] : unsteady) {
    text += fmt::format("{}{} {}by {:.0f}%", text.empty() ? "calibration: " : ", ", what,
                        text.empty() ? "varied " : "", 100 * spread);
  }
  return text + ": the machine is busy, the forecast may be off";
}

}  // namespace sluice::train
