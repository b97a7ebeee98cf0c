/// How long ops take, and what they get in each other's way on.
///
/// Each lane has a rate; each op an amount of work; each lane uses a share of some resources (the
/// disk, DRAM, the cores) while one of its ops runs. When the shares in use on a resource add up to
/// more than one, every op on it slows down alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prefetch/program.h"

namespace sluice::prefetch {

struct Resource {
  std::string name;
};

struct Demand {
  std::uint32_t resource = 0;  ///< index into CostModel::resources
  double share = 1.0;          ///< of it, that one op of the lane uses at full speed
};

struct LaneCost {
  double bytes_per_second = 0;  ///< 0: bytes cost nothing
  double flops_per_second = 0;  ///< 0: FLOPs cost nothing
  double latency_s = 0;         ///< of every op
  std::vector<Demand> demands;
};

struct CostModel {
  std::vector<Resource> resources;
  std::vector<LaneCost> lanes;  ///< by LaneId

  /// Seconds of one op that has its resources to itself.
  double seconds(const Op& op) const {
    const LaneCost& lane = lanes[op.lane];
    double s = lane.latency_s;
    if (lane.bytes_per_second > 0) s += op.cost.bytes / lane.bytes_per_second;
    if (lane.flops_per_second > 0) s += op.cost.flops / lane.flops_per_second;
    return s;
  }
};

}  // namespace sluice::prefetch
