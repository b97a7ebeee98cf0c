#include "engine/bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/bench/summary.h"

namespace sluice::bench {
namespace {

template <class Of>
double median_of(std::span<const Pair> pairs, Of of) {
  std::vector<double> values;
  for (const Pair& pair : pairs) values.push_back(of(pair));
  return median(std::move(values));
}

}  // namespace

Comparison compare(std::span<const Pair> pairs) {
  SLUICE_CHECK(!pairs.empty(), kLogic, "compare: no pairs");
  std::vector<double> ratios;
  for (const Pair& pair : pairs) {
    SLUICE_CHECK(pair.ours.point.traffic == pairs[0].ours.point.traffic &&
                     pair.fio.point.traffic == pairs[0].ours.point.traffic,
                 kLogic, "compare: pairs of different traffic");
    SLUICE_CHECK(pair.fio.rate() > 0, kLogic, "compare: fio moved nothing");
    ratios.push_back(pair.ours.rate() / pair.fio.rate());
  }
  Comparison all;
  all.traffic = pairs[0].ours.point.traffic;
  all.pairs = pairs.size();
  all.ours = median_of(pairs, [](const Pair& p) { return p.ours.rate(); });
  all.fio = median_of(pairs, [](const Pair& p) { return p.fio.rate(); });
  all.ours_cpu = median_of(pairs, [](const Pair& p) { return p.ours.cpu_s_per_gb; });
  all.fio_cpu = median_of(pairs, [](const Pair& p) { return p.fio.cpu_s_per_gb; });
  all.lowest = std::ranges::min(ratios);
  all.highest = std::ranges::max(ratios);
  all.ratio = median(std::move(ratios));
  return all;
}

std::string line_of(const Comparison& comparison) {
  return fmt::format(
      "{}: {:.2f} of fio's {:.2f} GB/s: {:.2f} (median of {} pair{}, {:.2f} to {:.2f})",
      name_of(comparison.traffic), comparison.ours * 1e-9, comparison.fio * 1e-9, comparison.ratio,
      comparison.pairs, comparison.pairs == 1 ? "" : "s", comparison.lowest, comparison.highest);
}

}  // namespace sluice::bench
