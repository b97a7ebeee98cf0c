#include "engine/plan/hiding.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/plan/rates.h"

namespace sluice::plan {
namespace {

using schedule::LaneKind;

/// Per second: 100 bytes of a drive, in either direction, and 10 FLOPs.
Rates slow(double overlap) {
  Rates rates;
  rates.nvme_read = rates.nvme_write = {100, 0};
  rates.nvme_overlap = overlap;
  rates.flops = 10;
  rates.op_s = 0;
  return rates;
}

struct Moves {
  LaneKind lane;
  int micro_batch;
  double amount;  ///< bytes, or FLOPs where the lane computes
};

/// Of a step with two micro-batches of 8 tokens.
Hiding hiding_of(const std::vector<Moves>& moves, double overlap = 1) {
  auto residents = std::make_shared<prefetch::Residents>();
  residents->seal();
  prefetch::Program step("step", residents);
  for (const Moves& one : moves) {
    prefetch::Op op;
    op.lane = schedule::lane_of(one.lane);
    op.where.micro_batch = one.micro_batch;
    (one.lane == LaneKind::kCompute ? op.cost.flops : op.cost.bytes) = one.amount;
    step.op(op);
  }
  step.seal();
  schedule::Setup setup;
  setup.micro_batches = 2;
  setup.micro_batch_size = 2;
  setup.seq_len = 4;
  return hide_drives(step, setup, cost_model(slow(overlap), schedule::make_lanes()));
}

// State that is read and written once, 6 s of the drive, and 1 s of computing for each micro-batch:
// as long at six of them.
TEST(Hiding, TakesSoManyMicroBatchesAsComputeForAsLong) {
  const std::vector<Moves> moves = {{LaneKind::kNvmeRead, -1, 300},
                                    {LaneKind::kNvmeWrite, -1, 300},
                                    {LaneKind::kCompute, 0, 10},
                                    {LaneKind::kCompute, 1, 10}};
  EXPECT_DOUBLE_EQ(hiding_of(moves).drives_s, 6);
  EXPECT_DOUBLE_EQ(hiding_of(moves).tokens.value(), 6 * 8);
  // Both directions at once: half as long.
  EXPECT_DOUBLE_EQ(hiding_of(moves, 2).drives_s, 3);
  EXPECT_DOUBLE_EQ(hiding_of(moves, 2).tokens.value(), 3 * 8);
  EXPECT_DOUBLE_EQ(hiding_of(moves, 0.75).drives_s, 6) << "in turn: else in each other's way";
}

TEST(Hiding, CountsWhatEachMicroBatchMoves) {
  // 4 s once, and half a second for each micro-batch, beside its 1 s of computing.
  EXPECT_DOUBLE_EQ(hiding_of({{LaneKind::kNvmeRead, -1, 400},
                              {LaneKind::kNvmeWrite, 0, 50},
                              {LaneKind::kNvmeWrite, 1, 50},
                              {LaneKind::kCompute, 0, 10},
                              {LaneKind::kCompute, 1, 10}})
                       .tokens.value(),
                   8 * 8);
}

TEST(Hiding, CountsWhatIsComputedOnce) {
  EXPECT_DOUBLE_EQ(hiding_of({{LaneKind::kNvmeRead, -1, 400},
                              {LaneKind::kCompute, -1, 10},
                              {LaneKind::kCompute, 0, 10},
                              {LaneKind::kCompute, 1, 10}})
                       .tokens.value(),
                   3 * 8);
}

TEST(Hiding, IsNeverWhereDrivesGetMoreToDoThanComputing) {
  const Hiding hiding = hiding_of({{LaneKind::kNvmeRead, 0, 200},
                                   {LaneKind::kNvmeRead, 1, 200},
                                   {LaneKind::kCompute, 0, 10},
                                   {LaneKind::kCompute, 1, 10}});
  EXPECT_DOUBLE_EQ(hiding.drives_s, 4);
  EXPECT_FALSE(hiding.tokens);
}

TEST(Hiding, IsAlwaysWhereDrivesDoNothing) {
  const Hiding hiding = hiding_of({{LaneKind::kCompute, 0, 10}, {LaneKind::kHostToDevice, 0, 10}});
  EXPECT_DOUBLE_EQ(hiding.drives_s, 0);
  EXPECT_DOUBLE_EQ(hiding.tokens.value(), 0);
}

}  // namespace
}  // namespace sluice::plan
