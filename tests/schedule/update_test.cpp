/// When the optimizer works: at the end of a step, or on each segment as its gradient arrives.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/schedule/placements.h"

namespace sluice::testing {
namespace {

using prefetch::BufferId;
using prefetch::Op;
using schedule::Operand;
using schedule::OpId;
using schedule::Update;

class BySegment : public EveryPlacement {};
INSTANTIATE_TEST_SUITE_P(End, BySegment, ::testing::ValuesIn(placements_by_segment(Update::kEnd)),
                         placement_name);
INSTANTIATE_TEST_SUITE_P(Arriving, BySegment,
                         ::testing::ValuesIn(placements_by_segment(Update::kArriving)),
                         placement_name);

class Arriving : public EveryPlacement {};
INSTANTIATE_TEST_SUITE_P(All, Arriving,
                         ::testing::ValuesIn(placements_by_segment(Update::kArriving)),
                         placement_name);

TEST_P(BySegment, EachSegmentIsDecidedByItsOwnNorms) {
  const Written run(GetParam());
  const Script step(run.step);
  const bool arrives = GetParam().arrives();
  const Op whole = step.only(arrives ? OpId::kEndUpdate : OpId::kDecide);
  const Op first = arrives ? step.only(OpId::kBeginUpdate) : whole;
  std::set<BufferId> records;
  for (int s = 0; s < run.segments(); ++s) {
    const auto decisions = step.of(OpId::kDecideSegment, s);
    ASSERT_EQ(decisions.size(), 1U);
    const Op& decision = decisions.front();
    EXPECT_EQ(buffer_of(decision, Operand::kStepRecord), buffer_of(first, Operand::kRecord));
    const BufferId norms = buffer_of(decision, Operand::kNorms);
    EXPECT_EQ(step.maker(norms).where.segment, s);
    EXPECT_EQ(whole.reads.at(1 + static_cast<std::size_t>(run.setup.micro_batches) +
                             static_cast<std::size_t>(s)),
              norms);
    const BufferId record = buffer_of(decision, Operand::kRecord);
    EXPECT_TRUE(records.insert(record).second);
    for (const Op& adam : step.of(OpId::kAdam, s)) {
      EXPECT_EQ(buffer_of(adam, Operand::kRecord), record);
    }
  }
}

TEST_P(BySegment, WhatAnUpdateWritesAsksTheRecordOfItsSegment) {
  const Written run(GetParam());
  const Script step(run.step);
  for (const Op& op : step.ops()) {
    if (!op.predicate) continue;
    const Op decision = step.of(OpId::kDecideSegment, op.where.segment).at(0);
    EXPECT_EQ(op.predicate->record, buffer_of(decision, Operand::kRecord)) << describe(op);
  }
  for (const OpId id : {OpId::kAdam, OpId::kWriteState, OpId::kWriteWeights, OpId::kPublish}) {
    for (const Op& op : step.of(id)) EXPECT_TRUE(op.predicate) << describe(op);
  }
}

/// Between the last op that makes a segment's gradient whole and its update stands no work of
/// another segment.
TEST_P(Arriving, ASegmentIsUpdatedRightBehindItsGradient) {
  const Written run(GetParam());
  const Script step(run.step);
  const auto& ops = step.ops();
  for (int s = 0; s < run.segments(); ++s) {
    const auto norm = std::ranges::find_if(ops, [&](const Op& op) {
      return schedule::id_of(op) == OpId::kNorm && op.where.segment == s;
    });
    ASSERT_NE(norm, ops.end());
    auto op = norm;
    for (std::size_t adams = 0; adams < run.setup.chunks[static_cast<std::size_t>(s)].size();) {
      ++op;
      ASSERT_NE(op, ops.end());
      if (schedule::id_of(*op) == OpId::kBeginUpdate) continue;
      EXPECT_EQ(op->where.segment, s) << describe(*op);
      if (schedule::id_of(*op) == OpId::kAdam) ++adams;
    }
  }
}

TEST_P(Arriving, TheGradientsOfAllLayersTakeOneSlot) {
  const Written run(GetParam());
  const auto& segments = run.setup.model->segments;
  const auto layer = std::ranges::find(segments, 0, &shape::Segment::layer) - segments.begin();
  const auto& route = run.catalog.routes[static_cast<std::size_t>(layer)];
  const Bytes bytes = run.setup.segment_elems(static_cast<int>(layer)) * size_of(route.dtype);
  EXPECT_EQ(minimum_pools(run)[run.catalog.gradients.at(bytes)].slots, 1U);
  Placement at_the_end = GetParam();
  at_the_end.update = Update::kEnd;
  const Written end(at_the_end);
  EXPECT_EQ(minimum_pools(end)[end.catalog.gradients.at(bytes)].slots, 3U);
}

TEST_P(Arriving, WhatTheStepTellsComesLastAndFromAllOfIt) {
  const Written run(GetParam());
  const Op end = Script(run.step).only(OpId::kEndUpdate);
  EXPECT_EQ(schedule::id_of(run.step->ops().back()), OpId::kEndUpdate);
  EXPECT_EQ(end.reads.size(), 1U + static_cast<std::size_t>(run.setup.micro_batches) +
                                  static_cast<std::size_t>(run.segments()));
}

}  // namespace
}  // namespace sluice::testing
