#include "engine/plan/rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "engine/schedule/ops.h"
#include "prefetch/simulate.h"

namespace sluice::plan {
namespace {

using schedule::LaneKind;
using schedule::OpId;

prefetch::Op op_of(OpId id, LaneKind lane, prefetch::Cost cost) {
  prefetch::Op op;
  op.kind = schedule::kind_of(id);
  op.lane = schedule::lane_of(lane);
  op.cost = cost;
  return op;
}

TEST(Rates, EveryLaneTakesTheTimeOfItsOwnRate) {
  Rates rates;
  rates.copy = 2e9;
  rates.nvme_read = {1e9, 3e9};
  rates.nvme_write = {0.5e9, 0};
  rates.adam = 4e9;
  rates.first_values = 1e9;
  rates.sums = 8e9;
  rates.device_sums = 4e9;
  rates.norms = 16e9;
  rates.flops = 1e12;
  rates.op_s = 0.25;
  const auto cost = cost_model(rates, schedule::make_lanes());
  const auto seconds = [&](OpId id, LaneKind lane, double bytes, double flops = 0) {
    return cost.seconds(op_of(id, lane, {bytes, flops})) - 0.25;
  };
  EXPECT_NEAR(seconds(OpId::kFetchWeights, LaneKind::kHostToDevice, 2e9), 1, 1e-9);
  EXPECT_NEAR(seconds(OpId::kOffloadGradient, LaneKind::kDeviceToHost, 2e9), 1, 1e-9);
  EXPECT_NEAR(seconds(OpId::kReadState, LaneKind::kNvmeRead, 2e9), 2, 1e-9);
  EXPECT_NEAR(seconds(OpId::kWriteState, LaneKind::kNvmeWrite, 2e9), 4, 1e-9);
  EXPECT_NEAR(seconds(OpId::kAdam, LaneKind::kCpu, 2e9), 0.5, 1e-9);
  EXPECT_NEAR(seconds(OpId::kInitState, LaneKind::kCpu, 2e9), 2, 1e-9);
  EXPECT_NEAR(seconds(OpId::kAccumulate, LaneKind::kCpu, 2e9), 0.25, 1e-9);
  EXPECT_NEAR(seconds(OpId::kAccumulate, LaneKind::kCompute, 2e9), 0.5, 1e-9);
  EXPECT_NEAR(seconds(OpId::kNorm, LaneKind::kCpu, 2e9), 0.125, 1e-9);
  EXPECT_NEAR(seconds(OpId::kLayerForward, LaneKind::kCompute, 0, 2e12), 2, 1e-9);
  EXPECT_NEAR(seconds(OpId::kDecide, LaneKind::kControl, 0), 0, 1e-9);
}

/// A check is as long as the transfer here: half of the op's time each.
TEST(Rates, WhatIsCheckedTakesACoreBesideTheTransfer) {
  Rates rates;
  rates.nvme_read = rates.nvme_write = {2e9, 8e9};
  rates.checks = 2e9;
  rates.check_cores = 0.5;
  rates.op_s = 0;
  const auto cost = cost_model(rates, schedule::make_lanes());
  for (const LaneKind lane : {LaneKind::kNvmeRead, LaneKind::kNvmeWrite}) {
    EXPECT_NEAR(cost.seconds(op_of(OpId::kReadState, lane, {2e9, 0})), 2, 1e-9);
    const auto& demands = cost.lanes[schedule::lane_of(lane)].demands;
    ASSERT_EQ(demands.size(), 4U);
    EXPECT_DOUBLE_EQ(demands[0].share, 0.125);
    EXPECT_DOUBLE_EQ(demands[1].share, 0.125);
    EXPECT_DOUBLE_EQ(demands[3].share, 0.25);
    EXPECT_EQ(cost.resources[demands[3].resource].name, "cores");
    EXPECT_EQ(cost.lanes[schedule::lane_of(lane)].at_once, 8U) << "half of the time the next one";
  }
}

TEST(Rates, CopiesOfOneDirectionTakeTurnsAndTheDrivesWorkOnSeveralTransfers) {
  Rates rates;
  rates.nvme_read = rates.nvme_write = {1e9, 4e9};
  const auto cost = cost_model(rates, schedule::make_lanes());
  const auto at_once = [&](LaneKind lane) { return cost.lanes[schedule::lane_of(lane)].at_once; };
  EXPECT_EQ(at_once(LaneKind::kHostToDevice), 1U);
  EXPECT_EQ(at_once(LaneKind::kDeviceToHost), 1U);
  EXPECT_EQ(at_once(LaneKind::kNvmeRead), 4U);
  EXPECT_EQ(at_once(LaneKind::kNvmeWrite), 4U);
}

/// 1.5 times what one way moves.
TEST(Rates, CopiesOfBothDirectionsShareTheLink) {
  Rates rates;
  rates.copy = 1e9;
  rates.copy_overlap = 1.5;
  rates.op_s = 0;
  auto residents = std::make_shared<prefetch::Residents>();
  residents->seal();
  auto program = std::make_shared<prefetch::Program>("both", residents);
  program->op(op_of(OpId::kFetchWeights, LaneKind::kHostToDevice, {3e9, 0}));
  program->op(op_of(OpId::kOffloadGradient, LaneKind::kDeviceToHost, {3e9, 0}));
  program->seal();
  const auto lanes = schedule::make_lanes();
  const std::vector<std::shared_ptr<const prefetch::Program>> stream{program};
  const auto line = prefetch::simulate({residents, {}, lanes}, stream, cost_model(rates, lanes));
  for (const auto& span : line.spans) EXPECT_NEAR(span.end, 4, 1e-9) << "3 seconds of each alone";
}

TEST(Rates, AnUpdateTakesWhatTheLaneTakesThatItRunsOn) {
  Rates rates;
  rates.compute_cores = 0.25;
  rates.cpu_cores = 0.75;
  const auto cores = [&](LaneKind lane) {
    rates.updates = lane;
    const auto cost = cost_model(rates, schedule::make_lanes());
    return cost.of(op_of(OpId::kAdam, lane, {1, 0})).demands.at(0).share;
  };
  EXPECT_DOUBLE_EQ(cores(LaneKind::kCpu), 0.75);
  EXPECT_DOUBLE_EQ(cores(LaneKind::kCompute), 0.25);
}

/// Host memory gives 20 GB/s here.
TEST(Rates, WhateverMovesBytesOfHostMemoryTakesItsPartOfIt) {
  Rates rates;
  rates.dram = 20e9;
  rates.adam = 15e9;
  rates.sums = 4e9;
  rates.device_sums = 8e9;
  rates.norms = 10e9;
  rates.copy = 5e9;
  rates.copy_ends = 2;
  rates.nvme_read = {2e9, 2e9};
  rates.compute[OpId::kHeadTrain] = {0, 0, 0.5};
  rates.compute[OpId::kLayerForward] = {0, 0, 0.5};
  rates.traffic[OpId::kHeadTrain] = 1e9;
  const auto share = [&](OpId id, LaneKind lane) {
    const auto cost = cost_model(rates, schedule::make_lanes());
    for (const auto& d : cost.of(op_of(id, lane, {1, 0})).demands) {
      if (cost.resources[d.resource].name == "host memory") return d.share;
    }
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(share(OpId::kAdam, LaneKind::kCpu), 0.75);
  EXPECT_DOUBLE_EQ(share(OpId::kAccumulate, LaneKind::kCpu), 1.5 * 0.2);
  EXPECT_DOUBLE_EQ(share(OpId::kAccumulate, LaneKind::kCompute), 0) << "a device's own memory";
  EXPECT_DOUBLE_EQ(share(OpId::kNorm, LaneKind::kCpu), 0.5) << "reads only";
  EXPECT_DOUBLE_EQ(share(OpId::kFetchWeights, LaneKind::kHostToDevice), 0.5);
  EXPECT_DOUBLE_EQ(share(OpId::kReadState, LaneKind::kNvmeRead), 0.1);
  EXPECT_DOUBLE_EQ(share(OpId::kHeadTrain, LaneKind::kCompute), 0.05);
  EXPECT_DOUBLE_EQ(share(OpId::kLayerForward, LaneKind::kCompute), 0) << "not known";
  rates.checks = 2e9;
  EXPECT_DOUBLE_EQ(share(OpId::kReadState, LaneKind::kNvmeRead), 2 * 0.05) << "half as fast";
  rates.adam = 30e9;
  EXPECT_DOUBLE_EQ(share(OpId::kAdam, LaneKind::kCpu), 1) << "out of a cache, in part";
  rates.updates = LaneKind::kCompute;
  rates.gradients = LaneKind::kCompute;
  EXPECT_DOUBLE_EQ(share(OpId::kAdam, LaneKind::kCompute), 0) << "a device's own memory";
  EXPECT_DOUBLE_EQ(share(OpId::kNorm, LaneKind::kCompute), 0) << "a device's own memory";
  rates.compute_cores = 1;
  EXPECT_DOUBLE_EQ(share(OpId::kAccumulate, LaneKind::kCompute), 1.5 * 0.4) << "the host's";
  rates.dram = 0;
  EXPECT_DOUBLE_EQ(share(OpId::kFetchWeights, LaneKind::kHostToDevice), 0);
}

TEST(Rates, WhatWasMeasuredOfAnOpCountsInsteadOfItsLane) {
  Rates rates;
  rates.compute[OpId::kHeadTrain] = {0, 1e9, 0.5};
  const auto cost = cost_model(rates, schedule::make_lanes());
  EXPECT_DOUBLE_EQ(cost.seconds(op_of(OpId::kHeadTrain, LaneKind::kCompute, {0, 2e9})), 2.5);
}

TEST(Rates, ADriveThatIsFasterWithManyTransfersIsOnlyPartlyUsedByOne) {
  Rates rates;
  rates.nvme_read = {1e9, 4e9};
  rates.nvme_write = {1e9, 0};
  const auto cost = cost_model(rates, schedule::make_lanes());
  const auto& read = cost.lanes[schedule::lane_of(LaneKind::kNvmeRead)].demands.at(0);
  const auto& write = cost.lanes[schedule::lane_of(LaneKind::kNvmeWrite)].demands.at(0);
  EXPECT_EQ(read.resource, write.resource) << "reads and writes share the drives";
  EXPECT_DOUBLE_EQ(read.share, 0.25);
  EXPECT_DOUBLE_EQ(write.share, 1.0);
}

/// Both directions get as many bytes, and one request of a kind is worked on where more gain
/// nothing.
TEST(Rates, DirectionsOfADriveGetAsManyBytesAndItsShortestRequestFirst) {
  Rates rates;
  rates.nvme_read = {2e9, 2.1e9};
  rates.nvme_write = {8e9, 30e9};
  rates.nvme_overlap = 0.9;
  rates.nvme_in_flight = 8e6;
  const auto cost = cost_model(rates, schedule::make_lanes());
  const auto& read = cost.lanes[schedule::lane_of(LaneKind::kNvmeRead)];
  const auto& write = cost.lanes[schedule::lane_of(LaneKind::kNvmeWrite)];
  EXPECT_DOUBLE_EQ(read.weight * read.bytes_per_second, write.weight * write.bytes_per_second);
  EXPECT_EQ(std::max(read.weight, write.weight), 1);
  EXPECT_EQ(read.at_once, 4U) << "as many as of writes, of which more gain nothing";
  EXPECT_EQ(write.at_once, 4U);
  EXPECT_EQ(read.turn, prefetch::Turn::kShortestFirst);
  EXPECT_DOUBLE_EQ(read.in_flight_s, 0.004);
  EXPECT_DOUBLE_EQ(write.in_flight_s, 0.001);
  EXPECT_EQ(cost.resources[read.demands.at(0).resource].shared, 0.9);
}

/// Reads gain nothing from a second transfer, writes gain from four; where neither direction gets
/// what it could alone, both have carried as much whenever one of them is done.
TEST(Rates, DirectionsOfADriveThatBothAreAskedOfEndTogether) {
  Rates rates;
  rates.nvme_read = {2e9, 2.1e9};
  rates.nvme_write = {2e9, 8e9};
  rates.nvme_overlap = 0.5;
  rates.op_s = 0;
  const auto residents = std::make_shared<prefetch::Residents>();
  residents->seal();
  const auto program = std::make_shared<prefetch::Program>("both", residents);
  for (int i = 0; i < 16; ++i) {
    program->op(op_of(OpId::kReadState, LaneKind::kNvmeRead, {1e9, 0}));
    program->op(op_of(OpId::kWriteState, LaneKind::kNvmeWrite, {1e9, 0}));
  }
  program->seal();
  const prefetch::Lanes lanes = schedule::make_lanes();
  const std::vector<std::shared_ptr<const prefetch::Program>> stream{program};
  const auto timeline =
      prefetch::simulate({residents, {}, lanes}, stream, cost_model(rates, lanes));
  std::map<prefetch::LaneId, double> ends;
  for (const auto& span : timeline.spans) ends[span.lane] = std::max(ends[span.lane], span.end);
  const double reads = ends.at(schedule::lane_of(LaneKind::kNvmeRead));
  const double writes = ends.at(schedule::lane_of(LaneKind::kNvmeWrite));
  EXPECT_NEAR(reads / writes, 1, 0.05);
}

TEST(Rates, CoresThatComputeTheModelGiveLessToSeveralLanes) {
  Rates rates;
  rates.shared_cores = 0.7;
  EXPECT_EQ(cost_model(rates, schedule::make_lanes()).resources.at(0).shared, 1) << "a device does";
  rates.compute_cores = 1;
  const auto cores = cost_model(rates, schedule::make_lanes()).resources.at(0);
  EXPECT_EQ(cores.name, "cores");
  EXPECT_EQ(cores.shared, 0.7);
}

TEST(Rates, WhatTheHostDoesBesideTheModelHasAWeightOfItsOwn) {
  Rates rates;
  rates.compute_cores = 1;
  rates.cpu_weight = 1.5;
  const auto weight = [&rates](OpId id, LaneKind lane) {
    return cost_model(rates, schedule::make_lanes()).of(op_of(id, lane, {1, 0})).weight;
  };
  rates.compute[OpId::kLayerForward] = {0, 0, 1};
  EXPECT_EQ(weight(OpId::kAdam, LaneKind::kCpu), 1.5);
  EXPECT_EQ(weight(OpId::kNorm, LaneKind::kCpu), 1.5);
  EXPECT_EQ(weight(OpId::kAccumulate, LaneKind::kCpu), 1.5);
  EXPECT_EQ(weight(OpId::kLayerForward, LaneKind::kCompute), 1);
  rates.updates = LaneKind::kCompute;
  EXPECT_EQ(weight(OpId::kAdam, LaneKind::kCompute), 1);
}

/// Both at once take a drive whose directions do not touch as long as one; more of one direction do
/// not get faster by that.
TEST(Rates, DirectionsThatDoNotTouchTakeNothingFromEachOther) {
  Rates rates;
  rates.nvme_read = rates.nvme_write = {1e9, 2e9};
  rates.nvme_overlap = 2;
  const auto cost = cost_model(rates, schedule::make_lanes());
  const auto& read = cost.lanes[schedule::lane_of(LaneKind::kNvmeRead)].demands;
  const auto& write = cost.lanes[schedule::lane_of(LaneKind::kNvmeWrite)].demands;
  EXPECT_EQ(read.at(0).resource, write.at(0).resource);
  EXPECT_DOUBLE_EQ(read.at(0).share, 0.5);
  EXPECT_EQ(cost.resources[read.at(0).resource].shared, 2);
  EXPECT_NE(read.at(1).resource, write.at(1).resource);
  EXPECT_DOUBLE_EQ(read.at(1).share, 0.5);
  EXPECT_DOUBLE_EQ(write.at(1).share, 0.5);
}

}  // namespace
}  // namespace sluice::plan
