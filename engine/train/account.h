/// The time of the lanes, as the driver counts it and as the plan expects it, with names and as
/// shares: for records and people.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/data/lane_share.h"
#include "engine/data/metrics.h"
#include "engine/executor/lane_time.h"
#include "engine/plan/plan.h"

namespace sluice::train {

class Account {
 public:
  Account(const prefetch::Lanes& lanes, const prefetch::Pools& pools);

  /// Of the time that `passed` between two looks, every moment of it; what a lane waited for at the
  /// second look is not known yet, and is "later op".
  std::vector<data::LaneShare> between(const std::vector<executor::LaneTime>& from,
                                       const std::vector<executor::LaneTime>& to,
                                       Nanos passed) const;
  /// Of a stretch of many steps, each wait under what ended it.
  std::vector<data::LaneShare> overall(const std::vector<executor::LaneTime>& from,
                                       const std::vector<executor::LaneTime>& to) const;
  /// nullopt: the step was too long to simulate.
  std::optional<data::Forecast> expected(const plan::Forecast& forecast) const;

 private:
  using Idle = std::vector<Nanos> executor::LaneTime::*;
  std::vector<data::LaneShare> shares(const std::vector<executor::LaneTime>& from,
                                      const std::vector<executor::LaneTime>& to, Idle idle,
                                      std::optional<Nanos> passed) const;

  std::vector<std::string> lanes_;
  std::vector<std::string> reasons_;
};

}  // namespace sluice::train
