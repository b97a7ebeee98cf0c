// What one training step says, on every placement: weights, compute, update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/schedule/programs.h"
#include "tests/schedule/adam.h"
#include "tests/schedule/placements.h"

namespace sluice::testing {
namespace {

using prefetch::BufferId;
using prefetch::Op;
using prefetch::Tier;
using schedule::buffer_of;
using schedule::LaneKind;
using schedule::Operand;
using schedule::OpId;
using shape::BlockKind;
using ::testing::ElementsAreArray;
using ::testing::Not;

using Step = EveryPlacement;
INSTANTIATE_TEST_SUITE_P(All, Step, ::testing::ValuesIn(all_placements()), placement_name);

bool contains(const std::vector<BufferId>& ids, BufferId id) {
  return std::ranges::count(ids, id) > 0;
}

std::vector<int> blocks_in_order(const Script& step, const std::vector<OpId>& kinds) {
  std::vector<int> order;
  for (const Op& op : step.ops()) {
    if (std::ranges::count(kinds, schedule::id_of(op)) > 0) order.push_back(op.where.segment);
  }
  return order;
}

TEST_P(Step, FetchesStreamedWeightsOncePerBlockForAllMicroBatches) {
  const Written run(GetParam());
  const Script step(run.step);
  std::vector<int> expected(static_cast<std::size_t>(run.segments()), 0);
  if (GetParam().streams()) {
    for (const auto& block : run.setup.model->blocks) {
      // A layer forward and backward; the head does both in one, the embedding's backward reads
      // none.
      const int sweeps = block.kind == BlockKind::kLayer ? 2 : 1;
      for (const int s : block.segments) expected[static_cast<std::size_t>(s)] += sweeps;
    }
  }
  for (int s = 0; s < run.segments(); ++s) {
    const auto times = static_cast<std::size_t>(expected[static_cast<std::size_t>(s)]);
    const BufferId home = run.catalog.params[static_cast<std::size_t>(s)];
    const auto reads = step.of(OpId::kReadWeights, s);
    const auto fetches = step.of(OpId::kFetchWeights, s);
    EXPECT_EQ(reads.size(), GetParam().params_on_nvme() ? times : 0);
    EXPECT_EQ(fetches.size(), GetParam().separate() ? times : 0);
    for (const Op& read : reads) EXPECT_THAT(read.reads, ElementsAreArray({home}));
    for (std::size_t i = 0; i < fetches.size(); ++i) {
      const BufferId from = GetParam().params_on_nvme() ? reads[i].writes[0] : home;
      EXPECT_THAT(fetches[i].reads, ElementsAreArray({from}));
    }
  }
}

TEST_P(Step, GoesBlockByBlockWhenItStreamsAndMicroBatchByMicroBatchWhenNot) {
  const Written run(GetParam());
  std::vector<int> forward, backward;
  const auto& blocks = run.setup.model->blocks;
  const auto mbs = GetParam().micro_batches;
  const auto down = [&](std::int64_t times) {
    for (std::size_t b = 0; b + 1 < blocks.size(); ++b) {
      forward.insert(forward.end(), static_cast<std::size_t>(times), blocks[b].segments.front());
    }
  };
  const auto up = [&](std::int64_t times) {
    for (std::size_t b = blocks.size(); b-- > 0;) {
      backward.insert(backward.end(), static_cast<std::size_t>(times), blocks[b].segments.front());
    }
  };
  const std::int64_t sweeps = GetParam().streams() ? 1 : mbs;
  for (std::int64_t i = 0; i < sweeps; ++i) {
    down(mbs / sweeps);
    up(mbs / sweeps);
  }
  const Script step(run.step);
  EXPECT_EQ(
      blocks_in_order(step, {OpId::kEmbedForward, OpId::kLayerForward, OpId::kLayerForwardKeep}),
      forward);
  EXPECT_EQ(blocks_in_order(step, {OpId::kHeadTrain, OpId::kHeadTrainKeep, OpId::kLayerBackward,
                                   OpId::kLayerBackwardKept, OpId::kEmbedBackward}),
            backward);
}

/// Where the bytes of a buffer came from, through copies, reads and writes.
BufferId origin(const Script& step, BufferId id) {
  while (true) {
    const Op& op = step.definer(id);
    const OpId kind = schedule::id_of(op);
    const bool moves = kind == OpId::kOffloadActivation || kind == OpId::kWriteActivation ||
                       kind == OpId::kReadActivation || kind == OpId::kFetchActivation;
    if (!moves) return id;
    id = op.reads.at(0);
  }
}

TEST_P(Step, GivesEachBlockTheOutputOfTheOneBefore) {
  const Written run(GetParam());
  const Script step(run.step);
  const bool kept = GetParam().kept_layers > 0;
  const auto of = [&](OpId id, int segment, int mb) {
    for (const Op& op : step.of(id, segment)) {
      if (op.where.micro_batch == mb) return op;
    }
    throw std::runtime_error("no such op");
  };
  const auto& blocks = run.setup.model->blocks;
  for (int mb = 0; mb < static_cast<int>(GetParam().micro_batches); ++mb) {
    const Op embed = of(OpId::kEmbedForward, blocks[0].segments[0], mb);
    const BufferId batch = buffer_of(embed, Operand::kBatch);
    EXPECT_EQ(step.definer(batch).where.micro_batch, mb);
    BufferId x = buffer_of(embed, Operand::kOutput);
    std::map<int, BufferId> inputs;
    for (const auto& block : blocks) {
      if (block.kind != BlockKind::kLayer) continue;
      const bool keeps = kept && block.segments[0] != blocks[1].segments[0];  // two of three
      const Op op =
          of(keeps ? OpId::kLayerForwardKeep : OpId::kLayerForward, block.segments[0], mb);
      EXPECT_EQ(buffer_of(op, Operand::kInput), x);
      EXPECT_EQ(buffer_of(op, Operand::kBatch), batch);
      inputs[block.segments[0]] = x;
      x = buffer_of(op, Operand::kOutput);
    }
    const Op head = of(head_of(GetParam()), blocks.back().segments[0], mb);
    EXPECT_EQ(buffer_of(head, Operand::kInput), x);
    EXPECT_EQ(buffer_of(head, Operand::kBatch), batch);
    BufferId dx = buffer_of(head, Operand::kInputGradient);
    for (std::size_t b = blocks.size() - 2; b > 0; --b) {
      const int s = blocks[b].segments[0];
      const bool keeps = kept && b != 1;
      const Op op = of(keeps ? OpId::kLayerBackwardKept : OpId::kLayerBackward, s, mb);
      EXPECT_EQ(origin(step, buffer_of(op, Operand::kInput)), inputs.at(s));
      EXPECT_EQ(buffer_of(op, Operand::kBatch), batch);
      EXPECT_EQ(buffer_of(op, Operand::kOutputGradient), dx);
      if (keeps) {
        const Op forward = of(OpId::kLayerForwardKeep, s, mb);
        EXPECT_EQ(buffer_of(op, Operand::kKept), buffer_of(forward, Operand::kKept));
      }
      dx = buffer_of(op, Operand::kInputGradient);
    }
    const Op last = of(OpId::kEmbedBackward, blocks[0].segments[0], mb);
    EXPECT_THAT(last.reads, ElementsAreArray({batch, dx}));
  }
}

TEST_P(Step, HandsTheWorkspaceToEveryOpOfABlock) {
  const Written run(GetParam());
  for (const Op& op : run.step->ops()) {
    const OpId id = schedule::id_of(op);
    const bool of_block = id == OpId::kEmbedForward || id == OpId::kLayerForward ||
                          id == OpId::kLayerForwardKeep || id == OpId::kHeadTrain ||
                          id == OpId::kHeadTrainKeep || id == OpId::kLayerBackward ||
                          id == OpId::kLayerBackwardKept || id == OpId::kEmbedBackward;
    EXPECT_EQ(contains(op.writes, run.catalog.workspace), of_block) << describe(op);
  }
}

TEST_P(Step, UpdatesEveryChunkOnceInOrder) {
  const Written run(GetParam());
  std::vector<std::pair<int, int>> updated;
  for (const Op& op : Script(run.step).of(schedule::adam_of(run.setup))) {
    updated.emplace_back(op.where.segment, op.where.chunk);
  }
  const auto all = run.all_chunks();
  EXPECT_EQ(updated, all);
}

TEST_P(Step, UpdatesTheStateInPlaceOrReadsAndWritesItOnce) {
  const Written run(GetParam());
  const Script step(run.step);
  const auto adams = step.of(schedule::adam_of(run.setup));
  const std::size_t moved = GetParam().on_nvme() ? adams.size() : 0;
  const auto reads = step.of(OpId::kReadState);
  const auto writes = step.of(OpId::kWriteState);
  ASSERT_EQ(reads.size(), moved);
  ASSERT_EQ(writes.size(), moved);
  for (std::size_t i = 0; i < adams.size(); ++i) {
    const Op& adam = adams[i];
    const BufferId home = run.catalog.states[static_cast<std::size_t>(adam.where.segment)]
                                            [static_cast<std::size_t>(adam.where.chunk)];
    const BufferId state = buffer_of(adam, Operand::kState);
    EXPECT_TRUE(contains(adam.reads, state) && contains(adam.writes, state));
    if (!GetParam().on_nvme()) {
      EXPECT_EQ(state, home);
      continue;
    }
    EXPECT_THAT(reads[i].reads, ElementsAreArray({home}));
    EXPECT_THAT(reads[i].writes, ElementsAreArray({state}));
    EXPECT_EQ(writes[i].reads.at(0), state);
    EXPECT_THAT(writes[i].writes, ElementsAreArray({home}));
  }
}

TEST_P(Step, MovesTheInputOfEveryLayerToItsHomeAndBackOncePerMicroBatch) {
  const Written run(GetParam());
  const Script step(run.step);
  const auto layers =
      static_cast<std::size_t>(run.setup.model->decoder.layers * run.setup.micro_batches);
  const bool moved = GetParam().activation != schedule::ActivationHome::kNone;
  const std::size_t copies = moved && GetParam().separate() ? layers : 0;
  const std::size_t transfers = GetParam().activations_on_nvme() ? layers : 0;
  EXPECT_EQ(step.count(OpId::kOffloadActivation), copies);
  EXPECT_EQ(step.count(OpId::kFetchActivation), copies);
  EXPECT_EQ(step.count(OpId::kWriteActivation), transfers);
  EXPECT_EQ(step.count(OpId::kReadActivation), transfers);
}

TEST_P(Step, HoldsFewActivationsOnTheDeviceWhenTheyAreSavedElsewhere) {
  const Written run(GetParam());
  prefetch::Initialised initialised(*run.catalog.residents);
  prefetch::serial_minimum(*run.init, run.catalog.pools, schedule::make_lanes(), initialised);
  const auto slots = [&](prefetch::PoolId pool) {
    return prefetch::serial_minimum(*run.step, run.catalog.pools, schedule::make_lanes(),
                                    initialised)
        .slots[pool];
  };
  const auto layers = static_cast<std::uint32_t>(run.setup.model->decoder.layers);
  const auto at_once =
      static_cast<std::uint32_t>(GetParam().streams() ? GetParam().micro_batches : 1);
  const bool moved =
      GetParam().activations_on_nvme() ||
      (GetParam().activation == schedule::ActivationHome::kCpu && GetParam().separate());
  if (moved) {
    EXPECT_EQ(slots(run.catalog.activations), at_once + 2);
  } else {
    EXPECT_EQ(slots(run.catalog.activations), (layers + 1) * at_once + 1);
  }
}

/// The ops that bring a chunk's new weights home from where Adam works.
std::vector<OpId> way_home(const Placement& p) {
  using schedule::ParamHome;
  const bool on_device = p.state_on_device() && p.separate();
  switch (p.param) {
    case ParamHome::kNone:
      return on_device || !p.separate() ? std::vector<OpId>{} : std::vector{OpId::kPublish};
    case ParamHome::kCpu:
      return on_device ? std::vector{OpId::kOffloadWeights} : std::vector<OpId>{};
    case ParamHome::kNvme:
      return on_device ? std::vector{OpId::kOffloadWeights, OpId::kWriteWeights}
                       : std::vector{OpId::kWriteWeights};
  }
  return {};
}

TEST_P(Step, BringsNewWeightsHomeFromWhereverAdamWorks) {
  const Written run(GetParam());
  const Script step(run.step);
  const auto adams = step.of(schedule::adam_of(run.setup));
  const std::vector<OpId> way = way_home(GetParam());
  for (const OpId id : {OpId::kPublish, OpId::kOffloadWeights, OpId::kWriteWeights}) {
    const bool on_the_way = std::ranges::count(way, id) > 0;
    EXPECT_EQ(step.count(id), on_the_way ? adams.size() : 0U) << schedule::kind_of(id).name;
  }
  for (std::size_t i = 0; i < adams.size(); ++i) {
    const BufferId home = run.catalog.param_parts[static_cast<std::size_t>(adams[i].where.segment)]
                                                 [static_cast<std::size_t>(adams[i].where.chunk)];
    BufferId at = buffer_of(adams[i], Operand::kFresh);
    for (const OpId id : way) {
      const Op move = step.of(id).at(i);
      EXPECT_EQ(buffer_of(move, Operand::kSource), at);
      at = buffer_of(move, Operand::kTarget);
    }
    EXPECT_EQ(at, home);
  }
}

TEST_P(Step, AsksTheRecordBeforeWhatASkippedStepMustNotDo) {
  const Written run(GetParam());
  const Script step(run.step);
  const BufferId record = buffer_of(step.only(OpId::kDecide), Operand::kRecord);
  bool decided = false;
  for (const Op& op : step.ops()) {
    const OpId id = schedule::id_of(op);
    // Reading and summing ahead does no harm; all else after the decision may be called off.
    const bool ahead = id == OpId::kReadState || id == OpId::kStartSum || id == OpId::kAccumulate;
    EXPECT_EQ(op.predicate.has_value(), decided && !ahead) << describe(op);
    EXPECT_EQ(contains(op.reads, record), schedule::is_adam(id)) << describe(op);
    if (op.predicate) {
      EXPECT_EQ(op.predicate->record, record) << describe(op);
      EXPECT_EQ(op.predicate->field, static_cast<std::uint16_t>(schedule::RecordField::kApplied));
    }
    decided = decided || id == OpId::kDecide;
  }
}

TEST_P(Step, ChangesNothingOfTheRunBeforeItIsDecided) {
  const Written run(GetParam());
  for (const Op& op : run.step->ops()) {
    if (op.predicate) continue;
    for (const BufferId id : op.writes) {
      const bool kept = run.step->persistent(id) && id != run.catalog.workspace;
      EXPECT_EQ(kept, id == run.catalog.control) << describe(op);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
