// What holds for the whole stream of programs, on every placement.
#include "engine/schedule/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/base/error.h"
#include "prefetch/simulate.h"
#include "tests/schedule/adam.h"
#include "tests/schedule/placements.h"
#include "tests/support/errors.h"

namespace sluice::testing {
namespace {

using prefetch::Op;
using prefetch::Tier;
using schedule::LaneKind;
using schedule::Operand;
using schedule::OpId;

using Programs = EveryPlacement;
INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::ValuesIn(all_placements()), placement_name);
INSTANTIATE_TEST_SUITE_P(Arriving, Programs,
                         ::testing::ValuesIn(placements_by_segment(schedule::Update::kArriving)),
                         placement_name);
INSTANTIATE_TEST_SUITE_P(Delayed, Programs, ::testing::ValuesIn(delayed_placements()),
                         placement_name);

/// Every lane does something else at a time: one unit per byte and FLOP, and a little latency.
prefetch::CostModel simple_cost() {
  prefetch::CostModel cost;
  cost.lanes.assign(schedule::make_lanes().size(), {1e9, 1e10, 1e-5, {}});
  return cost;
}

TEST_P(Programs, AreCorrectRunOneByOneInStreamOrder) {
  for (const DType compute : {DType::kBf16, DType::kF32}) {
    const Written run(GetParam(), compute);
    prefetch::Initialised initialised(*run.catalog.residents);
    for (const auto& program : run.programs()) {
      EXPECT_NO_THROW(
          prefetch::check(*program, minimum_pools(run), schedule::make_lanes(), initialised));
    }
  }
}

TEST_P(Programs, RunToTheirEndAtTheirSerialMinimum) {
  const Written run(GetParam());
  const std::vector stream{run.init, run.step, run.step, run.evaluation, run.step, run.last};
  const auto line = prefetch::simulate(
      {run.catalog.residents, minimum_pools(run), schedule::make_lanes()}, stream, simple_cost());
  std::size_t ops = 0;
  for (const auto& program : stream) ops += program->ops().size();
  EXPECT_EQ(line.spans.size(), ops);
}

TEST_P(Programs, CopyNothingBetweenGpuAndCpuWhenTheirMemoryIsOne) {
  const Written run(GetParam());
  for (const auto& program : run.programs()) {
    const Script script(program);
    const auto copies =
        script.on_lane(LaneKind::kHostToDevice) + script.on_lane(LaneKind::kDeviceToHost);
    const bool state_only = program == run.init || program == run.checkpoint ||
                            program == run.pending_checkpoint || program == run.drain ||
                            program == run.last || program == run.last_of_weights;
    if (!GetParam().separate()) {
      EXPECT_EQ(copies, 0U) << program->name();
    } else if (!state_only) {
      EXPECT_GT(copies, 0U) << program->name();
    }
  }
}

TEST_P(Programs, KeepOnNvmeWhatLivesThereAndNothingElse) {
  const Written run(GetParam());
  std::set<prefetch::BufferId> on_nvme;
  const auto look = [&](const prefetch::BufferTable& table) {
    for (const auto id : table.roots()) {
      const auto& buffer = table.info(id);
      EXPECT_EQ(buffer.tag, run.catalog.tags[buffer.pool]);
      if (run.catalog.pools[buffer.pool].tier == Tier::kNvme) on_nvme.insert(id);
    }
  };
  look(*run.catalog.residents);
  std::set<prefetch::BufferId> expected;
  if (GetParam().on_nvme()) {
    for (const auto& chunks : run.catalog.states) expected.insert(chunks.begin(), chunks.end());
  }
  if (GetParam().params_on_nvme()) {
    expected.insert(run.catalog.params.begin(), run.catalog.params.end());
  }
  EXPECT_EQ(on_nvme, expected);
  // The input of every layer, until its backward.
  const auto saved =
      static_cast<std::size_t>(run.setup.model->decoder.layers * run.setup.micro_batches);
  for (const auto& program : run.programs()) {
    on_nvme.clear();
    look(program->transients());
    const bool step = program->name() == run.step->name();
    const bool saves = GetParam().activations_on_nvme() && step;
    EXPECT_EQ(on_nvme.size(), saves ? saved : 0) << program->name();
  }
}

TEST_P(Programs, TouchNvmeFromItsOwnLanesOnly) {
  const Written run(GetParam());
  for (const auto& program : run.programs()) {
    for (const Op& op : program->ops()) {
      const auto on_nvme = [&](prefetch::BufferId id) {
        return run.catalog.pools[program->info(id).pool].tier == Tier::kNvme;
      };
      const OpId id = schedule::id_of(op);
      const bool reads =
          id == OpId::kReadState || id == OpId::kReadWeights || id == OpId::kReadActivation;
      const bool writes =
          id == OpId::kWriteState || id == OpId::kWriteWeights || id == OpId::kWriteActivation;
      EXPECT_EQ(std::ranges::any_of(op.reads, on_nvme), reads) << describe(op);
      EXPECT_EQ(std::ranges::any_of(op.writes, on_nvme), writes) << describe(op);
      // Files of others are on some drive too.
      const bool model = id == OpId::kReadModel || id == OpId::kReadGradient;
      EXPECT_EQ(op.lane == schedule::lane_of(LaneKind::kNvmeRead), reads || model) << describe(op);
      const bool checkpoint = id == OpId::kBeginCheckpoint || id == OpId::kWriteRecord ||
                              id == OpId::kWriteGradient || id == OpId::kSealCheckpoint;
      EXPECT_EQ(op.lane == schedule::lane_of(LaneKind::kNvmeWrite), writes || checkpoint)
          << describe(op);
    }
  }
}

TEST_P(Programs, ComputeOnTheDeviceFromMemoryThatItReaches) {
  const Written run(GetParam());
  for (const auto& program : run.programs()) {
    for (const Op& op : program->ops()) {
      if (op.lane != schedule::lane_of(LaneKind::kCompute)) continue;
      const auto expect_reached = [&](prefetch::BufferId id) {
        const auto& pool = run.catalog.pools[program->info(id).pool];
        EXPECT_TRUE(pool.tier == Tier::kGpu || !GetParam().separate())
            << describe(op) << " names " << pool.name;
      };
      // The host looks into these when it gives the op to the stream.
      for (std::size_t n = 0; n < op.reads.size(); ++n) {
        const Operand name = schedule::read_name(op, n);
        const bool host =
            name == Operand::kRecord || name == Operand::kControl || name == Operand::kHostBatch;
        if (!host) expect_reached(op.reads[n]);
      }
      std::ranges::for_each(op.writes, expect_reached);
    }
  }
}

TEST_P(Programs, KeepTheHostsLanesOffTheDevicesMemory) {
  if (!GetParam().separate()) return;
  const Written run(GetParam());
  for (const auto& program : run.programs()) {
    for (const Op& op : program->ops()) {
      const bool host = op.lane != schedule::lane_of(LaneKind::kCompute) &&
                        op.lane != schedule::lane_of(LaneKind::kHostToDevice) &&
                        op.lane != schedule::lane_of(LaneKind::kDeviceToHost);
      const auto tier = [&](prefetch::BufferId id) {
        return run.catalog.pools[program->info(id).pool].tier;
      };
      // Whoever runs the op, the host decides whether it does its work.
      EXPECT_TRUE(!op.predicate || tier(op.predicate->record) == Tier::kCpu) << describe(op);
      for (const auto& list : {op.reads, op.writes}) {
        for (const auto id : list) EXPECT_TRUE(!host || tier(id) != Tier::kGpu) << describe(op);
      }
    }
  }
}

TEST_P(Programs, CopyBetweenTheTwoEndsOfTheLink) {
  const Written run(GetParam());
  for (const auto& program : run.programs()) {
    for (const Op& op : program->ops()) {
      const bool to_device = op.lane == schedule::lane_of(LaneKind::kHostToDevice);
      const bool to_host = op.lane == schedule::lane_of(LaneKind::kDeviceToHost);
      if (!to_device && !to_host) continue;
      const auto tier = [&](Operand name) {
        return run.catalog.pools[program->info(schedule::buffer_of(op, name)).pool].tier;
      };
      // New weights that waited on the device for their turn.
      const bool stays = GetParam().delays() && GetParam().state_on_device() &&
                         program == run.step && schedule::id_of(op) == OpId::kPublish;
      EXPECT_EQ(tier(Operand::kSource), to_device && !stays ? Tier::kCpu : Tier::kGpu)
          << describe(op);
      EXPECT_EQ(tier(Operand::kTarget), to_device ? Tier::kGpu : Tier::kCpu) << describe(op);
    }
  }
}

TEST_P(Programs, InitWritesEveryWeightAndState) {
  const Written run(GetParam());
  prefetch::Initialised initialised(*run.catalog.residents);
  prefetch::serial_minimum(*run.init, run.catalog.pools, schedule::make_lanes(), initialised);
  const auto written = [&](prefetch::BufferId id) {
    const auto [begin, end] = run.catalog.residents->leaves(id);
    for (auto leaf = begin; leaf < end; ++leaf) {
      if (!initialised.contains(leaf)) return false;
    }
    return true;
  };
  EXPECT_TRUE(written(run.catalog.control));
  for (const auto param : run.catalog.params) EXPECT_TRUE(written(param));
  for (const auto& chunks : run.catalog.states) EXPECT_TRUE(std::ranges::all_of(chunks, written));
  for (const Op& op : run.init->ops()) EXPECT_FALSE(op.predicate) << describe(op);
}

TEST_P(Programs, FinalSavesEveryChunkOnceInOrder) {
  const Written run(GetParam());
  std::vector<std::pair<int, int>> saved;
  for (const Op& op : Script(run.last).of(OpId::kSave)) {
    saved.emplace_back(op.where.segment, op.where.chunk);
  }
  const auto all = run.all_chunks();
  EXPECT_EQ(saved, all);
}

/// A third of the state, of a split one lower halves and v, but for the end of a piece that is
/// summed: of whole segments, which are longer than that.
TEST_P(Programs, FinalBringsMastersOnly) {
  schedule::Setup setup = setup_of(GetParam());
  for (std::size_t i = 0; i < setup.chunks.size(); ++i) {
    const std::uint64_t elems = setup.segment_elems(static_cast<int>(i));
    setup.chunks[i] = zero::make_chunks(elems, elems);
  }
  const auto last = schedule::final_program(setup, schedule::make_catalog(setup));
  std::size_t shorter = 0, all = 0;
  for (const OpId id : {OpId::kReadState, OpId::kOffloadState}) {
    for (const Op& op : Script(last).of(id)) {
      const std::uint64_t elems = setup.segment_elems(op.where.segment);
      const Bytes state = elems * (GetParam().splits() ? 10 : 12);
      const Bytes masters = elems * (GetParam().splits() ? 2 + 4 : 4);
      const Bytes moved = last->info(schedule::buffer_of(op, Operand::kTarget)).bytes;
      EXPECT_EQ(moved, std::min(round_up(masters, 256_KiB), state)) << describe(op);
      EXPECT_EQ(op.cost.bytes, static_cast<double>(moved));
      shorter += moved < state ? 1 : 0;
      ++all;
    }
  }
  EXPECT_EQ(shorter > 0, all > 0);
}

/// No state is brought for weights that the host has as they are saved.
TEST_P(Programs, FinalOfComputesTypeSavesTheWeightsAtHomeWhereTheHostReachesThem) {
  const Written run(GetParam());
  const bool at_hand = GetParam().host_has_weights();
  const Script last(run.last_of_weights);
  std::vector<std::pair<int, int>> saved;
  for (const Op& op : last.of(at_hand ? OpId::kSaveWeights : OpId::kSave)) {
    saved.emplace_back(op.where.segment, op.where.chunk);
    if (!at_hand) continue;
    EXPECT_EQ(schedule::buffer_of(op, Operand::kWeights),
              run.catalog.param_parts[static_cast<std::size_t>(op.where.segment)]
                                     [static_cast<std::size_t>(op.where.chunk)]);
  }
  const auto all = run.all_chunks();
  EXPECT_EQ(saved, all);
  if (at_hand) {
    EXPECT_EQ(last.ops().size(), all.size()) << "nothing else";
  }
}

TEST_P(Programs, ACheckpointSumsAndWritesEveryChunkOnceAndChangesNothingOfTheRun) {
  const Written run(GetParam());
  const Script script(run.checkpoint);
  std::vector<std::pair<int, int>> summed, written;
  for (const Op& op : script.of(OpId::kSumState)) {
    summed.emplace_back(op.where.segment, op.where.chunk);
  }
  for (const Op& op : script.of(OpId::kWriteRecord)) {
    written.emplace_back(op.where.segment, op.where.chunk);
  }
  const auto all = run.all_chunks();
  EXPECT_EQ(summed, all);
  EXPECT_EQ(written, all);
  EXPECT_EQ(schedule::id_of(run.checkpoint->ops().back()), OpId::kSealCheckpoint);
  std::set<prefetch::BufferId> home;
  for (const auto& states : run.catalog.states) home.insert(states.begin(), states.end());
  for (const Op& op : run.checkpoint->ops()) {
    for (const auto id : op.writes) {
      const auto tag = run.catalog.tags[run.checkpoint->info(id).pool];
      const bool slot = tag == prefetch::MemoryTag::kState && !home.contains(id);
      EXPECT_TRUE(slot || tag == prefetch::MemoryTag::kControl) << describe(op);
      EXPECT_NE(id, run.catalog.control) << describe(op);
    }
  }
}

/// The decision of the step after it waits for no byte of it.
TEST_P(Programs, OnlyTheBeginningOfACheckpointReadsTheCounters) {
  const Written run(GetParam());
  for (const Op& op : run.checkpoint->ops()) {
    EXPECT_EQ(std::ranges::count(op.reads, run.catalog.control) > 0,
              schedule::id_of(op) == OpId::kBeginCheckpoint)
        << describe(op);
  }
}

TEST_P(Programs, EvaluationReportsOneLossPerMicroBatchAndChangesNothing) {
  const Written run(GetParam());
  const Script script(run.evaluation);
  const Op report = script.only(OpId::kReportLoss);
  ASSERT_EQ(report.reads.size(), 2U);
  for (std::size_t mb = 0; mb < 2; ++mb) {
    const Op& head = script.maker(report.reads[mb]);
    EXPECT_EQ(schedule::id_of(head), OpId::kHeadLoss);
    EXPECT_EQ(head.where.micro_batch, static_cast<int>(mb));
  }
  for (const Op& op : script.ops()) {
    for (const auto id : op.writes) {
      EXPECT_TRUE(!run.evaluation->persistent(id) || id == run.catalog.workspace) << describe(op);
    }
  }
}

class UpdatesAtTheEnd : public Programs {};
INSTANTIATE_TEST_SUITE_P(All, UpdatesAtTheEnd, ::testing::ValuesIn(all_placements()),
                         placement_name);

TEST_P(UpdatesAtTheEnd, AForwardWaitsForTheUpdateOfItsOwnBlockOnly) {
  if (GetParam().state_on_device()) return;  // one stream does both, in their order
  const Written run(GetParam());
  prefetch::Pools pools = minimum_pools(run);
  for (auto& pool : pools) pool.slots += 200;
  // A slow optimizer, so that whatever waits for too much of it is seen.
  prefetch::CostModel cost = simple_cost();
  cost.lanes[schedule::lane_of(LaneKind::kCpu)].latency_s = 10;
  const std::vector stream{run.init, run.step, run.step};
  const auto line =
      prefetch::simulate({run.catalog.residents, pools, schedule::make_lanes()}, stream, cost);
  double last_adam = 0;
  std::map<int, double> updated;  // by segment, in the first step
  std::map<int, double> forward;  // by a block's first segment: when its first one begins
  for (const auto& span : line.spans) {
    const Op& op = stream[span.op.instance]->ops()[span.op.index];
    const int segment = op.where.segment;
    const OpId id = schedule::id_of(op);
    if (schedule::is_adam(id) && span.op.instance == 1) {
      updated[segment] = std::max(updated[segment], span.end);
      last_adam = std::max(last_adam, span.end);
    }
    const bool forwards = id == OpId::kEmbedForward || id == OpId::kLayerForward ||
                          id == OpId::kLayerForwardKeep || id == OpId::kHeadTrain ||
                          id == OpId::kHeadTrainKeep;
    if (forwards && span.op.instance == 2) {
      const double before = forward.contains(segment) ? forward[segment] : span.begin;
      forward[segment] = std::min(before, span.begin);
    }
  }
  for (const auto& block : run.setup.model->blocks) {
    const int first = block.segments.front();
    double own = 0;  // the update of this block's last chunk
    for (const int s : block.segments) own = std::max(own, updated.at(s));
    EXPECT_GE(forward.at(first), own);
    // Less than one more op of the optimizer.
    if (block.kind != shape::BlockKind::kHead) {
      EXPECT_LT(forward.at(first), own + 10) << first;
      EXPECT_LT(forward.at(first), last_adam) << first;
    }
  }
}

TEST(OnePlacement, AStepBeforeInitIsRefused) {
  const Written run({});
  prefetch::Initialised nothing(*run.catalog.residents);
  const Error error = test::error_of([&] {
    prefetch::serial_minimum(*run.step, run.catalog.pools, schedule::make_lanes(), nothing);
  });
  EXPECT_EQ(error.code, Errc::kLogic);
}

}  // namespace
}  // namespace sluice::testing
