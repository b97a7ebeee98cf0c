#include "engine/train/account.h"

#include <algorithm>

namespace sluice::train {

using executor::LaneTime;
using executor::Reasons;

Account::Account(const prefetch::Lanes& lanes, const prefetch::Pools& pools) {
  const Reasons reasons(lanes.size(), pools.size());
  reasons_.resize(reasons.size());
  reasons_[Reasons::kStream] = "stream";
  reasons_[Reasons::kStart] = "start";
  reasons_[Reasons::kLater] = "later op";
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes_.push_back(lanes[i].name);
    reasons_[reasons.lane(i)] = lanes[i].name;
  }
  for (std::size_t i = 0; i < pools.size(); ++i) {
    reasons_[reasons.pool(i)] = "memory of " + pools[i].name;
  }
}

std::vector<data::LaneShare> Account::between(const std::vector<LaneTime>& from,
                                              const std::vector<LaneTime>& to, Nanos passed) const {
  return shares(from, to, &LaneTime::idle, passed);
}

std::vector<data::LaneShare> Account::overall(const std::vector<LaneTime>& from,
                                              const std::vector<LaneTime>& to) const {
  return shares(from, to, &LaneTime::ended, std::nullopt);
}

std::optional<data::Forecast> Account::expected(const plan::Forecast& forecast) const {
  const double seconds = forecast.seconds();
  if (forecast.busy.empty() || seconds <= 0) return std::nullopt;
  data::Forecast told{seconds, {}};
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    told.lanes.push_back({lanes_[lane], std::min(1.0, forecast.busy[lane] / seconds), {}});
  }
  return told;
}

std::vector<data::LaneShare> Account::shares(const std::vector<LaneTime>& from,
                                             const std::vector<LaneTime>& to, Idle idle,
                                             std::optional<Nanos> passed) const {
  std::vector<data::LaneShare> all;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const Nanos busy = to[lane].busy - from[lane].busy;
    std::vector<Nanos> waited;
    Nanos sum = busy;
    for (std::size_t r = 0; r < reasons_.size(); ++r) {
      waited.push_back((to[lane].*idle)[r] - (from[lane].*idle)[r]);
      sum += waited.back();
    }
    const Nanos whole = passed.value_or(sum);
    data::LaneShare share{lanes_[lane], 0, {}};
    if (whole > 0) {
      const auto part = [whole](Nanos n) {
        return static_cast<double>(n) / static_cast<double>(whole);
      };
      share.busy = part(busy);
      for (std::size_t r = 0; r < reasons_.size(); ++r) {
        if (waited[r] > 0) share.idle.emplace_back(reasons_[r], part(waited[r]));
      }
      std::ranges::stable_sort(share.idle, std::ranges::greater{},
                               &std::pair<std::string, double>::second);
    }
    all.push_back(std::move(share));
  }
  return all;
}

}  // namespace sluice::train
