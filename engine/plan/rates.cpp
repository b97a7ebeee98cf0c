#include "engine/plan/rates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace sluice::plan {

using prefetch::CostModel;
using prefetch::Demand;
using prefetch::LaneCost;
using prefetch::OpCost;
using prefetch::Rate;
using schedule::LaneKind;
using schedule::OpId;

namespace {

enum Resource : std::uint32_t {
  kCores,
  kDram,  // of the host
  kLink,  // between host and device
  kDrives,
  kReads,  // of drives: both directions may do more at once than one alone
  kWrites
};

/// Of a sum: it and the contribution are read, and it is written; ops count the sum twice. Of
/// contributions of 16 bits it is 1.25.
constexpr double kSumTraffic = 1.5;

/// Rates that lie no further apart are one.
constexpr double kSame = 0.1;

/// Of what host memory gives, for so many bytes per second.
Demand dram(double bytes_per_second, const Rates& rates) {
  return {kDram, rates.dram > 0 ? std::min(1.0, bytes_per_second / rates.dram) : 0};
}

/// So many ops that take this share of the drives use all of them.
std::uint32_t at_once(double share) {
  return static_cast<std::uint32_t>(std::ceil(1 / share - kSame));
}

/// A transfer, and before or behind it its check, which takes a core and leaves the drives to
/// others meanwhile. Both directions have as many requests at the drives (nvme::Backlog), so both
/// get as many bytes, by their weights and by set_drives(); what the drives have already is not
/// overtaken by what is shorter.
void set_drive(LaneCost& lane, const Throughput& t, Resource direction, const Rates& rates) {
  if (t.alone <= 0) return;  // not measured
  const double drives = t.together > t.alone ? t.alone / t.together : 1.0;
  // Its share of the op's time.
  const double transferring = rates.checks > 0 ? 1 / (1 + t.alone / rates.checks) : 1.0;
  lane.bytes_per_second = t.alone * transferring;
  lane.turn = prefetch::Turn::kShortestFirst;
  lane.at_once = at_once(drives * transferring);
  lane.in_flight_s = rates.nvme_in_flight / lane.bytes_per_second;
  const double other = (direction == kReads ? rates.nvme_write : rates.nvme_read).alone;
  if (other > 0 && other < t.alone) lane.weight = other / t.alone;
  const double passes = rates.checks > 0 ? 2 : 1;  // through memory: a check reads it all, too
  lane.demands = {{kDrives, drives * transferring},
                  {direction, drives * transferring},
                  dram(passes * lane.bytes_per_second, rates),
                  {kCores, rates.check_cores * (1 - transferring)}};
}

/// With as many transfers of each direction worked on: were it one of reads and two of writes,
/// those would get twice the bytes.
void set_drives(LaneCost& read, LaneCost& write, const Rates& rates) {
  set_drive(read, rates.nvme_read, kReads, rates);
  set_drive(write, rates.nvme_write, kWrites, rates);
  if (rates.nvme_read.alone <= 0 || rates.nvme_write.alone <= 0) return;
  read.at_once = write.at_once = std::max(read.at_once, write.at_once);
}

}  // namespace

CostModel cost_model(const Rates& rates, const prefetch::Lanes& lanes) {
  const bool device_is_host = rates.compute_cores > 0;
  CostModel cost;
  cost.resources = {{"cores", device_is_host ? rates.shared_cores : 1.0},
                    {"host memory"},
                    {"link", rates.copy_overlap},
                    {"drives", rates.nvme_overlap},
                    {"reads of drives"},
                    {"writes of drives"}};
  LaneCost idle;
  idle.latency_s = rates.op_s;
  cost.lanes.assign(lanes.size(), idle);
  const auto lane = [&](LaneKind kind) -> LaneCost& { return cost.lanes[schedule::lane_of(kind)]; };
  lane(LaneKind::kCompute).flops_per_second = rates.flops;
  lane(LaneKind::kCompute).bytes_per_second = rates.device_sums;
  const double summed = device_is_host ? kSumTraffic * rates.device_sums : 0;
  lane(LaneKind::kCompute).demands = {{kCores, rates.compute_cores}, dram(summed, rates)};
  for (const LaneKind direction : {LaneKind::kHostToDevice, LaneKind::kDeviceToHost}) {
    lane(direction).bytes_per_second = rates.copy;
    lane(direction).demands = {
        {kCores, rates.copy_cores}, {kLink, 1}, dram(rates.copy * rates.copy_ends, rates)};
    lane(direction).at_once = 1;  // copies of one direction stand on one stream
  }
  set_drives(lane(LaneKind::kNvmeRead), lane(LaneKind::kNvmeWrite), rates);
  lane(LaneKind::kCpu).bytes_per_second = rates.sums;
  lane(LaneKind::kCpu).demands = {{kCores, rates.cpu_cores}, dram(kSumTraffic * rates.sums, rates)};
  lane(LaneKind::kCpu).weight = rates.cpu_weight;

  cost.kinds.assign(static_cast<std::size_t>(OpId::kCount), std::nullopt);
  const auto by = [&](LaneKind who, OpId id, double traffic, const Rate& rate) {
    const bool host = who == LaneKind::kCpu;
    cost.kinds[static_cast<std::size_t>(id)] =
        OpCost{rate,
               {{kCores, host ? rates.cpu_cores : rates.compute_cores}, dram(traffic, rates)},
               host ? rates.cpu_weight : 1.0};
  };
  const auto of_host = [&](LaneKind who, double traffic) {
    return who == LaneKind::kCpu || device_is_host ? traffic : 0;
  };
  for (const OpId adam : {OpId::kAdam, OpId::kAdamSplit}) {
    by(rates.updates, adam, of_host(rates.updates, rates.adam), {rates.adam, 0, rates.op_s});
  }
  by(rates.gradients, OpId::kNorm, of_host(rates.gradients, rates.norms),
     {rates.norms, 0, rates.op_s});
  for (const OpId id : {OpId::kInitState, OpId::kJoinState, OpId::kSplitState}) {
    by(LaneKind::kCpu, id, rates.first_values, {rates.first_values, 0, rates.op_s});
  }
  for (const auto& [id, rate] : rates.compute) {
    const auto traffic = rates.traffic.find(id);
    by(LaneKind::kCompute, id, traffic == rates.traffic.end() ? 0 : traffic->second, rate);
  }
  return cost;
}

}  // namespace sluice::plan
