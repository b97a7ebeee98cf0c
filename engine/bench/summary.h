/// What several runs of a point come to: arithmetic only.
///
/// Thread  any
#pragma once

#include <optional>
#include <vector>

#include "engine/base/median.h"
#include "engine/bench/point.h"

namespace sluice::bench {

/// One for each point, in the order in which the points came first.
std::vector<Summary> summarize(const std::vector<Measured>& measured);

/// The fastest of a kind of traffic, of `engine` alone where one is given; null where there is
/// none.
const Summary* fastest(const std::vector<Summary>& summaries, Traffic traffic,
                       std::optional<nvme::Engine> engine = std::nullopt);

/// This much slower is as fast for a run, which waits for single requests too.
inline constexpr double kAsFast = 0.05;

/// The one to use: among those of `traffic` that were measured as often as any, the fastest; of
/// those that are as fast, or no slower than its or their own spread explains, the one with the
/// least in flight, which takes the least memory and answers soonest. Null where there is none.
const Summary* winner(const std::vector<Summary>& summaries, Traffic traffic);

/// Whether the last five rates are within 5% of each other.
bool is_flat(const std::vector<double>& rates);

}  // namespace sluice::bench
