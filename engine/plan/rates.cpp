#include "engine/plan/rates.h"

#include <algorithm>
#include <optional>

namespace sluice::plan {

using prefetch::CostModel;
using prefetch::LaneCost;
using prefetch::Rate;
using schedule::LaneKind;
using schedule::OpId;

namespace {

enum Resource : std::uint32_t { kCores, kTowardsDevice, kFromDevice, kDrives };

/// So much of the drives as one transfer can use.
double share(const Throughput& t) {
  return t.together > t.alone ? t.alone / t.together : 1.0;
}

}  // namespace

CostModel cost_model(const Rates& rates, const prefetch::Lanes& lanes) {
  CostModel cost;
  cost.resources = {{"cores"}, {"towards the device"}, {"from the device"}, {"drives"}};
  LaneCost idle;
  idle.latency_s = rates.op_s;
  cost.lanes.assign(lanes.size(), idle);
  const auto lane = [&](LaneKind kind) -> LaneCost& { return cost.lanes[schedule::lane_of(kind)]; };
  lane(LaneKind::kCompute).flops_per_second = rates.flops;
  lane(LaneKind::kCompute).bytes_per_second = rates.sums;
  lane(LaneKind::kCompute).demands = {{kCores, rates.compute_cores}};
  lane(LaneKind::kHostToDevice).bytes_per_second = rates.copy;
  lane(LaneKind::kHostToDevice).demands = {{kTowardsDevice, 1.0}, {kCores, rates.copy_cores}};
  lane(LaneKind::kDeviceToHost).bytes_per_second = rates.copy;
  lane(LaneKind::kDeviceToHost).demands = {{kFromDevice, 1.0}, {kCores, rates.copy_cores}};
  lane(LaneKind::kNvmeRead).bytes_per_second = rates.nvme_read.alone;
  lane(LaneKind::kNvmeRead).demands = {{kDrives, share(rates.nvme_read)}};
  lane(LaneKind::kNvmeWrite).bytes_per_second = rates.nvme_write.alone;
  lane(LaneKind::kNvmeWrite).demands = {{kDrives, share(rates.nvme_write)}};
  lane(LaneKind::kCpu).bytes_per_second = rates.sums;
  lane(LaneKind::kCpu).demands = {{kCores, rates.cpu_cores}};

  cost.kinds.assign(static_cast<std::size_t>(OpId::kCount), std::nullopt);
  for (const OpId id : {OpId::kAdam, OpId::kInitState}) {
    cost.kinds[static_cast<std::size_t>(id)] = Rate{rates.adam, 0, rates.op_s};
  }
  for (const auto& [id, rate] : rates.compute) cost.kinds[static_cast<std::size_t>(id)] = rate;
  return cost;
}

}  // namespace sluice::plan
