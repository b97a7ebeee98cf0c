/// Passes over memory, timed in shuffled rounds.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "engine/bench/memory_point.h"
#include "engine/bench/progress.h"

namespace sluice::bench {

struct MemoryCase {
  MemoryPoint point;
  std::function<void()> pass;
};

struct MemoryEffort {
  int rounds = 5;
  double seconds = 0.2;  ///< of one visit, behind a pass that does not count; at least one pass
};

/// Visits every case once a round, each round in another order, so that what the machine does
/// meanwhile meets all of them. Ends early, at the next case, when `stop` is no longer 0.
///
/// Thread  one
std::vector<MemoryRun> measure(const std::vector<MemoryCase>& cases, const MemoryEffort& effort,
                               std::uint64_t seed, Progress& progress,
                               const std::atomic<int>& stop);

/// One for each point, in the order of the cases; points that no run has are left out.
std::vector<MemorySummary> summarize(const std::vector<MemoryCase>& cases,
                                     const std::vector<MemoryRun>& runs);

}  // namespace sluice::bench
