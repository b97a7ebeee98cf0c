#include "engine/bench/summary.h"

#include <algorithm>
#include <cstddef>

namespace sluice::bench {
namespace {

constexpr std::ptrdiff_t kFlatFor = 5;
constexpr double kFlatWithin = 0.05;

/// The median over the runs of a point.
template <class Value>
double median_of(const std::vector<const Measured*>& runs, const Value& value) {
  std::vector<double> values;
  for (const Measured* run : runs) values.push_back(value(*run));
  return median(values);
}

Latency median_of(const std::vector<const Measured*>& runs, Latency Measured::*which) {
  return {median_of(runs, [&](const Measured& run) { return (run.*which).p50_s; }),
          median_of(runs, [&](const Measured& run) { return (run.*which).p99_s; }),
          median_of(runs, [&](const Measured& run) { return (run.*which).p999_s; })};
}

Summary summary_of(const std::vector<const Measured*>& runs) {
  Summary summary;
  summary.point = runs.front()->point;
  summary.repetitions = static_cast<int>(runs.size());
  summary.read_rate = median_of(runs, [](const Measured& run) { return run.read_rate; });
  summary.write_rate = median_of(runs, [](const Measured& run) { return run.write_rate; });
  summary.cpu_s_per_gb = median_of(runs, [](const Measured& run) { return run.cpu_s_per_gb; });
  summary.read_latency = median_of(runs, &Measured::read_latency);
  summary.write_latency = median_of(runs, &Measured::write_latency);
  const auto rate = [](const Measured* run) { return run->rate(); };
  const auto [slowest, quickest] = std::ranges::minmax(runs, {}, rate);
  const double middle = median_of(runs, [](const Measured& run) { return run.rate(); });
  if (middle > 0) summary.spread = (quickest->rate() - slowest->rate()) / middle;
  if (runs.front()->rate() > 0) summary.drift = runs.back()->rate() / runs.front()->rate() - 1;
  return summary;
}

}  // namespace

std::vector<Summary> summarize(const std::vector<Measured>& measured) {
  std::vector<std::vector<const Measured*>> by_point;
  for (const Measured& run : measured) {
    const auto same = std::ranges::find_if(
        by_point, [&](const auto& runs) { return runs.front()->point == run.point; });
    if (same == by_point.end()) {
      by_point.push_back({&run});
    } else {
      same->push_back(&run);
    }
  }
  std::vector<Summary> summaries;
  for (const auto& runs : by_point) summaries.push_back(summary_of(runs));
  return summaries;
}

const Summary* fastest(const std::vector<Summary>& summaries, Traffic traffic,
                       std::optional<nvme::Engine> engine) {
  const Summary* best = nullptr;
  for (const Summary& summary : summaries) {
    if (summary.point.traffic != traffic) continue;
    if (engine && summary.point.engine != *engine) continue;
    if (best == nullptr || summary.rate() > best->rate()) best = &summary;
  }
  return best;
}

const Summary* winner(const std::vector<Summary>& summaries, Traffic traffic) {
  int most = 0;
  for (const Summary& summary : summaries) {
    if (summary.point.traffic == traffic) most = std::max(most, summary.repetitions);
  }
  std::vector<Summary> known;
  for (const Summary& summary : summaries) {
    if (summary.repetitions == most) known.push_back(summary);
  }
  const Summary* best = fastest(known, traffic);
  if (best == nullptr) return nullptr;
  const Summary* chosen = best;
  for (const Summary& other : known) {
    if (other.point.traffic != traffic) continue;
    // The spread reaches from the slowest to the fastest: half of it to either side.
    const double spread = std::max(best->spread, other.spread) / 2;
    const double within = std::max(spread, kAsFast) * best->rate();
    if (best->rate() - other.rate() > within) continue;
    const Bytes less = other.point.in_flight(), more = chosen->point.in_flight();
    if (less < more || (less == more && other.rate() > chosen->rate())) chosen = &other;
  }
  const auto at = std::ranges::find(summaries, chosen->point, &Summary::point);
  return &*at;
}

bool is_flat(const std::vector<double>& rates) {
  if (std::ssize(rates) < kFlatFor) return false;
  const auto [low, high] = std::minmax_element(rates.end() - kFlatFor, rates.end());
  return *high - *low <= kFlatWithin * *high;
}

}  // namespace sluice::bench
