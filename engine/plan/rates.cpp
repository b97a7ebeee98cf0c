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

enum Resource : std::uint32_t {
  kCores,
  kTowardsDevice,
  kFromDevice,
  kDrives,
  kReads,  // of drives: both directions may do more at once than one alone
  kWrites
};

/// A transfer, and before or behind it its check, which takes a core and leaves the drives to
/// others meanwhile.
void set_drive(LaneCost& lane, const Throughput& t, Resource direction, const Rates& rates) {
  const double drives = t.together > t.alone ? t.alone / t.together : 1.0;
  lane.bytes_per_second = t.alone;
  lane.demands = {{kDrives, drives / rates.nvme_overlap}, {direction, drives}};
  if (rates.checks <= 0 || t.alone <= 0) return;
  const double transferring = 1 / (1 + t.alone / rates.checks);  // share of the op's time
  lane.bytes_per_second = t.alone * transferring;
  lane.demands = {{kDrives, drives / rates.nvme_overlap * transferring},
                  {direction, drives * transferring},
                  {kCores, rates.check_cores * (1 - transferring)}};
}

}  // namespace

CostModel cost_model(const Rates& rates, const prefetch::Lanes& lanes) {
  CostModel cost;
  cost.resources = {{"cores"},  {"towards the device"}, {"from the device"},
                    {"drives"}, {"reads of drives"},    {"writes of drives"}};
  LaneCost idle;
  idle.latency_s = rates.op_s;
  cost.lanes.assign(lanes.size(), idle);
  const auto lane = [&](LaneKind kind) -> LaneCost& { return cost.lanes[schedule::lane_of(kind)]; };
  lane(LaneKind::kCompute).flops_per_second = rates.flops;
  lane(LaneKind::kCompute).bytes_per_second = rates.device_sums;
  lane(LaneKind::kCompute).demands = {{kCores, rates.compute_cores}};
  lane(LaneKind::kHostToDevice).bytes_per_second = rates.copy;
  lane(LaneKind::kHostToDevice).demands = {{kTowardsDevice, 1.0}, {kCores, rates.copy_cores}};
  lane(LaneKind::kDeviceToHost).bytes_per_second = rates.copy;
  lane(LaneKind::kDeviceToHost).demands = {{kFromDevice, 1.0}, {kCores, rates.copy_cores}};
  set_drive(lane(LaneKind::kNvmeRead), rates.nvme_read, kReads, rates);
  set_drive(lane(LaneKind::kNvmeWrite), rates.nvme_write, kWrites, rates);
  lane(LaneKind::kCpu).bytes_per_second = rates.sums;
  lane(LaneKind::kCpu).demands = {{kCores, rates.cpu_cores}};

  cost.kinds.assign(static_cast<std::size_t>(OpId::kCount), std::nullopt);
  const auto bytes = [&](OpId id) -> auto& {
    return cost.kinds[static_cast<std::size_t>(id)];
  };
  bytes(OpId::kAdam) = Rate{rates.adam, 0, rates.op_s};
  bytes(OpId::kInitState) = Rate{rates.first_values, 0, rates.op_s};
  for (const auto& [id, rate] : rates.compute) cost.kinds[static_cast<std::size_t>(id)] = rate;
  return cost;
}

}  // namespace sluice::plan
