/// How long ops take, and what they get in each other's way on.
///
/// Each lane has a rate, and some kinds of ops one of their own; each op an amount of work. While
/// an op runs it uses a share of some resources (the disk, DRAM, the cores), less of it when it is
/// slower. Ops that ask more of a resource than there is slow down by their weights; who is kept
/// slow by one resource leaves the others to those beside it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "prefetch/program.h"

namespace sluice::prefetch {

struct Resource {
  std::string name;
  /// What it gives to ops of several lanes at once, of what it gives to those of one. Less than 1:
  /// who shares it is in the other's way.
  double shared = 1.0;
};

struct Demand {
  std::uint32_t resource = 0;  ///< index into CostModel::resources
  double share = 1.0;          ///< of it, that one op uses at full speed
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

struct OpCost : Rate {
  std::vector<Demand> demands;
  /// Ops that one resource keeps slow go at parts of their full speeds that are to each other as
  /// their weights. The larger, the more of the resource an op gets.
  double weight = 1.0;
};

/// Which of the ops that a lane has started are worked on.
enum class Turn : std::uint8_t {
  kInOrder,       ///< of their start, each to its end
  kShortestFirst  ///< those with the least left
};

struct LaneCost : OpCost {
  /// So many of the ops that the lane has started are worked on, the others wait. Of a stream: one.
  std::uint32_t at_once = std::numeric_limits<std::uint32_t>::max();
  Turn turn = Turn::kInOrder;
  /// Seconds of the lane's work that are under way at a time, and that an op which is shorter does
  /// not overtake.
  double in_flight_s = 0;
};

struct CostModel {
  std::vector<Resource> resources;
  std::vector<LaneCost> lanes;                    ///< by LaneId
  std::vector<std::optional<OpCost>> kinds = {};  ///< by OpKind::id: instead of the lane's

  const OpCost& of(const Op& op) const {
    if (op.kind.id < kinds.size() && kinds[op.kind.id]) return *kinds[op.kind.id];
    return lanes[op.lane];
  }
  /// Of one op that has its resources to itself.
  double seconds(const Op& op) const { return of(op).seconds(op.cost); }
};

}  // namespace sluice::prefetch
