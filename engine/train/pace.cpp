#include "engine/train/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "engine/base/median.h"
#include "engine/data/step_line.h"
#include "engine/schedule/ops.h"

namespace sluice::train {
namespace {

using data::format_seconds;
using data::StepRecord;
using schedule::LaneKind;
using Steps = std::deque<StepRecord>;

/// A lane that was busy for longer by less than this share of what the step lost is not why.
constexpr double kOfTheLoss = 0.1;
/// Nor does it matter how slow a drive is that is busy for longer by less than this share of a
/// step.
constexpr double kOfTheStep = 0.02;

struct DriveLane {
  std::size_t lane;
  Bytes StepRecord::*bytes;
};
constexpr std::array<DriveLane, 2> kDrives = {{
    {schedule::lane_of(LaneKind::kNvmeRead), &StepRecord::nvme_read_bytes},
    {schedule::lane_of(LaneKind::kNvmeWrite), &StepRecord::nvme_write_bytes},
}};

template <class Value>
double median_of(const Steps& steps, const Value& value) {
  std::vector<double> values;
  for (const StepRecord& step : steps) values.push_back(value(step));
  return median(std::move(values));
}

double busy_s(const Steps& steps, std::size_t lane) {
  return median_of(steps, [lane](const StepRecord& s) { return s.lanes[lane].busy * s.seconds; });
}

double busy_s(const data::Forecast& forecast, std::size_t lane) {
  return forecast.lanes[lane].busy * forecast.seconds;
}

/// Bytes per second while it is busy; 0: it moved none.
double rate(const Steps& steps, const DriveLane& drive) {
  return median_of(steps, [&](const StepRecord& s) {
    const double busy = s.lanes[drive.lane].busy * s.seconds;
    return busy > 0 ? static_cast<double>(s.*drive.bytes) / busy : 0;
  });
}

/// The same as forecast. How drives share themselves between reads and writes is theirs: a lane
/// that was to have most of them is only expected to be as fast as both together.
double forecast_rate(const Steps& steps, std::size_t drive) {
  const data::Forecast& forecast = *steps.back().forecast;
  double bytes = 0, busy = 0, own = 0;
  for (std::size_t i = 0; i < kDrives.size(); ++i) {
    const double moved = median_of(
        steps, [&](const StepRecord& s) { return static_cast<double>(s.*kDrives[i].bytes); });
    const double for_s = busy_s(forecast, kDrives[i].lane);
    bytes += moved;
    busy += for_s;
    if (i == drive && for_s > 0) own = moved / for_s;
  }
  return busy > 0 ? std::min(own, bytes / busy) : 0;
}

constexpr const char* kSlowDrives =
    "the drive's cache is full, it is hot, something else uses it or the processor, or a quota of "
    "the cgroup is used up";

/// What takes longer on a lane than it did at the start, and what may be the reason.
const char* why_busy(LaneKind lane) {
  switch (lane) {
    case LaneKind::kCompute:
      return "ops take longer than at the start: something else uses the processor, a quota of its "
             "cgroup is used up, or it is hot";
    case LaneKind::kCpu:
      return "Adam and sums take longer than at the start: something else uses the processor, or a "
             "quota of its cgroup is used up";
    case LaneKind::kHostToDevice:
    case LaneKind::kDeviceToHost:
      return "copies take longer than at the start: something else uses the memory or the link";
    case LaneKind::kNvmeRead:
    case LaneKind::kNvmeWrite:
      return kSlowDrives;
    case LaneKind::kData:
      return "batches come late: the drive that data lies on is slow, or something else uses it";
    case LaneKind::kControl:
      return "it got no processor: something else uses them";
  }
  return "";
}

/// Of the lane that should be the busiest: what it waited for most.
std::string waits(const Steps& steps) {
  const auto& forecast = steps.back().forecast->lanes;
  const auto busiest = std::ranges::max_element(forecast, {}, &data::LaneShare::busy);
  const auto lane = static_cast<std::size_t>(busiest - forecast.begin());
  std::map<std::string, double> waited;  // seconds of all these steps
  for (const StepRecord& step : steps) {
    for (const auto& [reason, share] : step.lanes[lane].idle) {
      waited[reason] += share * step.seconds;
    }
  }
  const auto most =
      std::ranges::max_element(waited, {}, &std::map<std::string, double>::value_type::second);
  std::string text = "no lane was busy for so much longer than forecast";
  if (most == waited.end()) return text;
  return text + fmt::format("; {}, the busiest of the forecast, waited for {} most: {}",
                            busiest->lane, most->first,
                            format_seconds(most->second / static_cast<double>(steps.size())));
}

std::string gb_per_s(double bytes_per_second) {
  return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
}

}  // namespace

std::vector<std::string> Pace::add(const StepRecord& step) {
  steps_.push_back(step);
  if (steps_.size() > kMost) steps_.pop_front();
  if (steps_.size() < kFewest || steps_.size() % 2 == 0) return {};  // a median is one of them
  for (std::size_t i = 0; i < kDrives.size(); ++i) {
    if (first_[i] == 0) first_[i] = rate(steps_, kDrives[i]);
  }
  std::vector<std::string> said;
  for (const auto& found : {late(), slow_drive()}) {
    if (found) said.push_back(*found);
  }
  return said;
}

std::optional<std::string> Pace::unjudged(bool forecast) const {
  if (!forecast) {
    return "steps were not judged by a forecast: one of this run is too long to be simulated";
  }
  if (steps_.size() >= kFewest) return std::nullopt;
  return fmt::format(
      "steps were not judged by their forecast: that takes {}, from the third of a run on, with no "
      "evaluation or checkpoint beside them, none skipped and, where updates are to be late, none "
      "before they are; there were {}. metrics.jsonl has what was forecast and what came",
      kFewest, steps_.size());
}

std::optional<std::string> Pace::late() {
  const auto& forecast = steps_.back().forecast;
  if (!forecast) return std::nullopt;
  const double took = median_of(steps_, [](const StepRecord& s) { return s.seconds; });
  if (took <= std::max(kLate * forecast->seconds, kLater * late_told_s_)) return std::nullopt;
  late_told_s_ = took;
  std::size_t worst = 0;
  double worst_by = 0;
  for (std::size_t lane = 0; lane < forecast->lanes.size(); ++lane) {
    const double by = busy_s(steps_, lane) - busy_s(*forecast, lane);
    if (by > worst_by) std::tie(worst, worst_by) = std::pair(lane, by);
  }
  std::string text =
      fmt::format("the step takes {}, {:.0f}% more than the forecast {}: ", format_seconds(took),
                  100 * (took / forecast->seconds - 1), format_seconds(forecast->seconds));
  if (worst_by < kOfTheLoss * (took - forecast->seconds)) return text + waits(steps_);
  // Reads and writes are one drive's: what slowed one of them is not said of the other.
  if (std::ranges::find(kDrives, worst, &DriveLane::lane) != kDrives.end()) {
    for (std::size_t i = 0; i < kDrives.size(); ++i) told_[i] = rate(steps_, kDrives[i]);
  }
  return text + fmt::format("{} was busy for {}, forecast {}: {}", forecast->lanes[worst].lane,
                            format_seconds(busy_s(steps_, worst)),
                            format_seconds(busy_s(*forecast, worst)),
                            why_busy(static_cast<LaneKind>(worst)));
}

Pace::Known Pace::known(std::size_t drive) const {
  if (told_[drive] > 0) return {told_[drive], "before"};
  const Known first{first_[drive], "before"};
  if (!steps_.back().forecast) return first;
  const double promised = forecast_rate(steps_, drive);
  return promised > first.rate ? Known{promised, "forecast"} : first;
}

std::optional<std::string> Pace::slow_drive() {
  if (drive_said_) return std::nullopt;
  for (std::size_t i = 0; i < kDrives.size(); ++i) {
    const double now = rate(steps_, kDrives[i]);
    const Known had = known(i);
    const double lost_s = (1 - now / std::max(had.rate, now)) * busy_s(steps_, kDrives[i].lane);
    if (now >= kSlowDrive * had.rate || lost_s < kOfTheStep * steps_.back().seconds) continue;
    drive_said_ = true;
    return fmt::format("{} moves {} while it is busy, {} {}: {}",
                       steps_.back().lanes[kDrives[i].lane].lane, gb_per_s(now), had.since,
                       gb_per_s(had.rate), kSlowDrives);
  }
  return std::nullopt;
}

}  // namespace sluice::train
