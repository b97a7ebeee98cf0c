#include "engine/bench/memory_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>

#include "engine/base/clock.h"
#include "engine/base/machine.h"
#include "engine/bench/summary.h"

namespace sluice::bench {
namespace {

void visit(const std::function<void()>& pass, double seconds, MemoryRun& run) {
  pass();
  const double cpu_begin = processor_seconds();
  const Nanos begin = now_ns();
  int passes = 0;
  double over = 0;
  do {
    pass();
    ++passes;
    over = to_seconds(now_ns() - begin);
  } while (over < seconds);
  run.seconds = over / passes;
  run.cpu_seconds = (processor_seconds() - cpu_begin) / passes;
}

bool same_bytes(const MemoryPoint& a, const MemoryPoint& b) {
  return a.work == b.work && a.size == b.size && a.threads == b.threads;
}

MemorySummary summary_of(const MemoryPoint& point, const std::vector<MemoryRun>& runs) {
  std::vector<double> seconds;
  for (const MemoryRun& run : runs) {
    if (run.point == point) seconds.push_back(run.seconds);
  }
  MemorySummary summary{.point = point, .repetitions = static_cast<int>(seconds.size())};
  if (seconds.empty()) return summary;
  summary.seconds = median(seconds);
  const auto [least, most] = std::ranges::minmax(seconds);
  summary.spread = (most - least) / summary.seconds;
  return summary;
}

}  // namespace

std::vector<MemoryRun> measure(const std::vector<MemoryCase>& cases, const MemoryEffort& effort,
                               std::uint64_t seed, Progress& progress,
                               const std::atomic<int>& stop) {
  std::vector<std::size_t> order(cases.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  std::vector<MemoryRun> runs;
  for (int round = 0; round < effort.rounds; ++round) {
    std::ranges::shuffle(order, random);
    for (const std::size_t i : order) {
      if (stop != 0) return runs;
      const MemoryPoint& point = cases[i].point;
      runs.push_back({.point = point, .repetition = round});
      visit(cases[i].pass, effort.seconds, runs.back());
      progress.now(fmt::format("{} {}: {:.1f} GB/s", point.work, point.by,
                               static_cast<double>(point.moved) / runs.back().seconds / 1e9));
    }
  }
  return runs;
}

std::vector<MemorySummary> summarize(const std::vector<MemoryCase>& cases,
                                     const std::vector<MemoryRun>& runs) {
  std::vector<MemorySummary> summaries;
  for (const MemoryCase& one : cases) {
    MemorySummary summary = summary_of(one.point, runs);
    if (summary.repetitions > 0) summaries.push_back(std::move(summary));
  }
  for (MemorySummary& summary : summaries) {
    for (const MemorySummary& roof : summaries) {
      if (!roof.point.roof || !same_bytes(roof.point, summary.point)) continue;
      if (summary.roof_seconds == 0 || roof.seconds < summary.roof_seconds) {
        summary.roof_seconds = roof.seconds;
      }
    }
  }
  return summaries;
}

}  // namespace sluice::bench
