/// When the optimizer works: at the end of a step, on each segment as its gradient arrives, or one
/// step late.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/schedule/adam.h"
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
    for (const Op& adam : step.of(schedule::adam_of(run.setup), s)) {
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
  for (const OpId id :
       {schedule::adam_of(run.setup), OpId::kWriteState, OpId::kWriteWeights, OpId::kPublish}) {
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
      if (schedule::is_adam(schedule::id_of(*op))) ++adams;
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

class Delayed : public EveryPlacement {
 protected:
  Delayed() : run_(GetParam()), step_(run_.step) {}

  bool names(const std::vector<BufferId>& list, BufferId root) const {
    return std::ranges::any_of(list, [&](BufferId id) { return run_.step->root(id) == root; });
  }
  /// Places in the step.
  using Places = std::vector<std::size_t>;
  Places where(const std::function<bool(const Op&)>& wanted) const {
    Places places;
    for (std::size_t i = 0; i < step_.ops().size(); ++i) {
      if (wanted(step_.ops()[i])) places.push_back(i);
    }
    return places;
  }

  const Written run_;
  const Script step_;
};
INSTANTIATE_TEST_SUITE_P(All, Delayed, ::testing::ValuesIn(delayed_placements()), placement_name);

/// Adam reads what the step before left, then this step's gradient takes its place, once.
TEST_P(Delayed, EachGradientIsUsedBeforeThisStepsTakesItsPlace) {
  for (int s = 0; s < run_.segments(); ++s) {
    const BufferId pending = run_.catalog.pending[static_cast<std::size_t>(s)];
    const auto reads = where([&](const Op& op) {
      const bool source = schedule::is_adam(schedule::id_of(op)) ||
                          (op.predicate && op.where.chunk >= 0);  // or what brings it to Adam
      return source && names(op.reads, pending);
    });
    const auto writes = where([&](const Op& op) { return names(op.writes, pending); });
    ASSERT_EQ(reads.size(), run_.setup.chunks[static_cast<std::size_t>(s)].size());
    ASSERT_FALSE(writes.empty());
    EXPECT_LT(reads.back(), writes.front());
    // All of it: of a tied segment both uses, added.
    EXPECT_EQ(buffer_of(step_.of(OpId::kNorm, s).at(0), Operand::kGradient), pending);
  }
}

/// All that the step computes is of the old weights.
TEST_P(Delayed, NewWeightsComeHomeWhenTheOldOnesHaveBeenRead) {
  for (int s = 0; s < run_.segments(); ++s) {
    const BufferId home = run_.catalog.params[static_cast<std::size_t>(s)];
    const auto reads = where([&](const Op& op) { return names(op.reads, home); });
    const auto writes = where([&](const Op& op) { return names(op.writes, home); });
    ASSERT_EQ(writes.size(), run_.setup.chunks[static_cast<std::size_t>(s)].size());
    EXPECT_LT(reads.back(), writes.front());
  }
}

TEST_P(Delayed, UpdatesAskTheRecordOfTheStepBefore) {
  const auto& pending = run_.catalog.pending_records;
  ASSERT_EQ(pending.size(), GetParam().clips_segments ? run_.setup.layouts.size() : 1U);
  const auto takes = step_.of(OpId::kTakeRecord);
  ASSERT_EQ(takes.size(), pending.size());
  for (const Op& op : step_.ops()) {
    if (!op.predicate) continue;
    const std::size_t which =
        GetParam().clips_segments ? static_cast<std::size_t>(op.where.segment) : 0;
    EXPECT_EQ(buffer_of(takes[which], Operand::kSource), pending[which]);
    EXPECT_EQ(op.predicate->record, buffer_of(takes[which], Operand::kRecord)) << describe(op);
  }
  const auto decided = step_.of(GetParam().clips_segments ? OpId::kDecideSegment : OpId::kDecide);
  ASSERT_EQ(decided.size(), pending.size());
  for (std::size_t i = 0; i < pending.size(); ++i) {
    EXPECT_EQ(buffer_of(decided[i], Operand::kRecord), pending[i]);
  }
}

/// One set of gradients and one of weights; with all micro-batches together new weights take the
/// slots of one block, at the least.
TEST_P(Delayed, TakesOneSetOfGradientsAndFewNewWeights) {
  const auto pools = minimum_pools(run_);
  std::map<prefetch::PoolId, std::uint32_t> at_home;
  for (const BufferId gradient : run_.catalog.pending) {
    ++at_home[run_.catalog.residents->info(gradient).pool];
  }
  for (const auto& [pool, homes] : at_home) {
    const bool tied = run_.setup.uses.front() > 1;
    EXPECT_LE(pools[pool].slots, homes + (tied ? 1 : 0)) << pools[pool].name;
  }
  if (GetParam().micro_batches > 1 && run_.setup.sweep == 1) return;
  Bytes waiting = 0, weights = 0;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    if (pools[i].name.find("fresh") != std::string::npos) waiting += pools[i].slot * pools[i].slots;
  }
  for (int s = 0; s < run_.segments(); ++s) {
    weights += run_.setup.segment_elems(s) * size_of(run_.setup.compute);
  }
  EXPECT_LT(waiting, weights);
}

}  // namespace
}  // namespace sluice::testing
