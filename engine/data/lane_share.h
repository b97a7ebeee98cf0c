/// Where the time of one lane went, for people: a line per lane.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice::data {

/// Shares of a stretch of time; they add up to 1.
struct LaneShare {
  std::string lane;
  double busy = 0;                                   ///< with at least one op running
  std::vector<std::pair<std::string, double>> idle;  ///< by reason, the largest first; none is 0
};

/// A line per lane that did anything: its busy share and the three largest reasons of waiting.
///
///   compute      71% | h2d 20%, memory of gpu param 28.0 MiB 6%, start 1%
std::string lane_table(const std::vector<LaneShare>& lanes);

}  // namespace sluice::data
