#include "engine/data/lane_share.h"

#include <fmt/core.h>

#include <algorithm>

namespace sluice::data {
namespace {

constexpr std::size_t kReasonsShown = 3;
constexpr double kTooSmall = 0.005;  // rounds to 0%

std::string line_of(const LaneShare& lane, std::size_t width) {
  std::string line = fmt::format("{:<{}} {:>3.0f}%", lane.lane, width, 100 * lane.busy);
  const char* before = " | ";
  for (std::size_t i = 0; i < std::min(lane.idle.size(), kReasonsShown); ++i) {
    const auto& [reason, share] = lane.idle[i];
    if (share < kTooSmall) break;
    line += fmt::format("{}{} {:.0f}%", before, reason, 100 * share);
    before = ", ";
  }
  return line;
}

}  // namespace

std::string lane_table(const std::vector<LaneShare>& lanes) {
  std::size_t width = 0;
  for (const LaneShare& lane : lanes) width = std::max(width, lane.lane.size());
  std::string table;
  for (const LaneShare& lane : lanes) {
    if (lane.busy == 0) continue;
    table += (table.empty() ? "" : "\n") + line_of(lane, width);
  }
  return table;
}

}  // namespace sluice::data
