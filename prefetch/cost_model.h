/// How long ops take, and what they get in each other's way on.
///
/// Each lane has a rate, and some kinds of ops one of their own; each op an amount of work; each
/// lane uses a share of some resources (the disk, DRAM, the cores) while one of its ops runs. When
/// the shares in use on a resource add up to more than one, every op on it slows down alike.
#pragma once

#include <cstdint>
#include <optional>
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

/// How fast an op that has its resources to itself runs.
struct Rate {
  double bytes_per_second = 0;  ///< 0: bytes cost nothing
  double flops_per_second = 0;  ///< 0: FLOPs cost nothing
  double latency_s = 0;         ///< of every op

  double seconds(const Cost& cost) const {
    double s = latency_s;
    if (bytes_per_second > 0) s += cost.bytes / bytes_per_second;
    if (flops_per_second > 0) s += cost.flops / flops_per_second;
    return s;
  }
};

struct LaneCost : Rate {
  std::vector<Demand> demands;
};

struct CostModel {
  std::vector<Resource> resources;
  std::vector<LaneCost> lanes;                  ///< by LaneId
  std::vector<std::optional<Rate>> kinds = {};  ///< by OpKind::id: instead of the lane's

  /// Seconds of one op that has its resources to itself.
  double seconds(const Op& op) const {
    if (op.kind.id < kinds.size() && kinds[op.kind.id]) {
      return kinds[op.kind.id]->seconds(op.cost);
    }
    return lanes[op.lane].seconds(op.cost);
  }
};

}  // namespace sluice::prefetch
