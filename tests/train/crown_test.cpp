/// The crown test: where the bytes live, and how the program is executed, does not show in the
/// bits. And what a row is about has really happened in it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/schedule/catalog.h"
#include "gpu/device.h"
#include "tests/schedule/adam.h"
#include "tests/support/extent.h"
#include "tests/train/crown_rows.h"
#include "tests/train/kernel_watch.h"

namespace sluice::train {
namespace {

using prefetch::Tier;
using schedule::LaneKind;
using schedule::OpId;

/// The reference of these numbers: serial, everything resident, one thread, no delays.
Fingerprint reference(const TempFolder& folder, const Wiring& wiring, double clip) {
  Job job = job_of(folder, wiring);
  job.homes = {.offload_param = schedule::ParamHome::kNone,
               .offload_gradient = schedule::GradientHome::kNone,
               .offload_optimizer = schedule::OptimizerHome::kCpu,
               .offload_activation = schedule::ActivationHome::kNone,
               .recompute = schedule::Recompute::kEveryLayer,
               .sub_group_size = 48_KiB};
  job.execution = Execution::kSerial;
  job.train.gradient_clipping = clip;
  return run(job, disturbance_of(wiring));
}

/// The pairs of lanes of which ops ran at the same time.
std::set<std::pair<std::uint32_t, std::uint32_t>> lanes_together(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::size_t j = i + 1; j < spans.size() && spans[j].begin < spans[i].end; ++j) {
      if (spans[i].track != spans[j].track) {
        pairs.insert(std::minmax(spans[i].track, spans[j].track));
      }
    }
  }
  return pairs;
}

/// Those of the run's steps, and between them what drains.
std::vector<std::shared_ptr<const prefetch::Program>> steps_of(const CrownRow& row,
                                                               const Observed& seen) {
  const plan::Programs& programs = seen.plan.programs;
  if (!row.wiring.delayed()) return {seen.records.size(), programs.step};
  const auto& [own, first, drain, checkpoint] = programs.delayed;
  if (row.wiring.drains()) return {own, first, drain, first, programs.step, drain, first, drain};
  return {own, first, programs.step, programs.step, programs.step, drain};
}

void expect_every_op_once(const CrownRow& row, const Observed& seen) {
  const auto ops = [](const auto& program) { return program->ops().size(); };
  const plan::Programs& programs = seen.plan.programs;
  const auto evaluations = seen.print.valid_losses.size();
  std::size_t expected = ops(programs.init) + evaluations * ops(programs.evaluation);
  for (const auto& program : steps_of(row, seen)) expected += ops(program);
  EXPECT_EQ(seen.spans.size(), expected + ops(programs.final));
}

/// Ops of different lanes run at the same time where the row is overlapped; the compute lane is one
/// of them.
bool runs_as_its_row_says(const CrownRow& row, const Observed& seen) {
  const auto together = lanes_together(seen.spans);
  if (row.memory == Memory::kSerialPlenty) return together.empty();
  return together.size() > 1 && std::any_of(together.begin(), together.end(), [](const auto& pair) {
           return pair.first == schedule::lane_of(LaneKind::kCompute);
         });
}

/// The limit is as tight as the row says, and the plan keeps to it.
void expect_memory(const CrownRow& row, const Observed& seen) {
  const plan::Plan& plan = seen.plan;
  for (const Tier tier : {Tier::kGpu, Tier::kCpu, Tier::kNvme}) {
    EXPECT_LE(plan.planned[index(tier)], plan.limits.tiers[index(tier)]);
    if (row.memory == Memory::kMinimum) {
      EXPECT_EQ(plan.planned[index(tier)], plan.limits.tiers[index(tier)]);
    }
  }
}

/// In bf16, whose weights the host has, a drive is given no upper halves of masters.
void expect_split(const CrownRow& row, const Observed& seen) {
  const bool saved = row.saves_weights_at_home();
  for (const auto& [id, some] :
       {std::pair(OpId::kAdamSplit, row.splits()), std::pair(OpId::kAdam, !row.splits()),
        std::pair(OpId::kSplitState, row.splits()),
        std::pair(OpId::kJoinState, row.splits() && !saved), std::pair(OpId::kSaveWeights, saved),
        std::pair(OpId::kSave, !saved)}) {
    EXPECT_EQ(seen.count(id) > 0, some) << schedule::kind_of(id).name;
  }
}

/// Copies between tiers where they are apart, none where they share memory.
void expect_copies(const CrownRow& row, const Observed& seen) {
  const auto steps = static_cast<std::int64_t>(seen.records.size());
  const auto expect_some_if = [&](bool some, OpId id) {
    if (some) {
      EXPECT_GE(seen.count(id), steps) << schedule::kind_of(id).name;
    } else {
      EXPECT_EQ(seen.count(id), 0) << schedule::kind_of(id).name;
    }
  };
  const bool apart = !row.unified();
  const Homes& homes = row.homes;
  expect_some_if(apart, OpId::kFetchBatch);
  expect_some_if(apart && homes.param != schedule::ParamHome::kNone, OpId::kFetchWeights);
  expect_some_if(apart && homes.param == schedule::ParamHome::kNone, OpId::kPublish);
  const bool updated_there = homes.state == schedule::OptimizerHome::kNone;
  const bool gradients_here = homes.gradient == schedule::GradientHome::kCpu;
  // A contribution, or a chunk for the optimizer.
  expect_some_if(apart && (gradients_here || !updated_there), OpId::kOffloadGradient);
  expect_some_if(apart && gradients_here && updated_there, OpId::kFetchGradient);
  expect_some_if(apart && updated_there && homes.param != schedule::ParamHome::kNone,
                 OpId::kOffloadWeights);
  const bool saves = homes.activation != schedule::ActivationHome::kNone;
  expect_some_if(apart && saves, OpId::kOffloadActivation);
  expect_some_if(apart && saves, OpId::kFetchActivation);
  const bool disk_weights = homes.param == schedule::ParamHome::kNvme;
  expect_some_if(disk_weights, OpId::kReadWeights);
  expect_some_if(disk_weights, OpId::kWriteWeights);
  const bool disk_state = homes.state == schedule::OptimizerHome::kNvme;
  expect_some_if(disk_state, OpId::kReadState);
  expect_some_if(apart && updated_there && !row.saves_weights_at_home(), OpId::kOffloadState);
  expect_split(row, seen);
  expect_some_if(disk_state, OpId::kWriteState);
  const bool disk_inputs = homes.activation == schedule::ActivationHome::kNvme;
  expect_some_if(disk_inputs, OpId::kReadActivation);
  expect_some_if(disk_inputs, OpId::kWriteActivation);
  Bytes read = 0, written = 0;
  for (const data::StepRecord& record : seen.records) {
    read += record.nvme_read_bytes;
    written += record.nvme_write_bytes;
    // Overlapped, what one step does may be counted in its neighbour. Delayed, it is.
    if (row.memory != Memory::kSerialPlenty || row.wiring.delayed()) continue;
    EXPECT_EQ(record.nvme_read_bytes > 0, homes.on_nvme()) << record.step;
    // A skipped step updates nothing, but it has block inputs.
    const bool writes = homes.on_nvme() && (!record.skipped || disk_inputs);
    EXPECT_EQ(record.nvme_write_bytes > 0, writes) << record.step;
  }
  EXPECT_EQ(read > 0, homes.on_nvme());
  EXPECT_EQ(written > 0, homes.on_nvme());
}

/// How many layers keep their forward, and whether the head its logits, follows from the row; who
/// does says so in its ops.
void expect_keeping(const CrownRow& row, const Observed& seen) {
  const schedule::Setup& setup = seen.plan.setup;
  const bool streams = setup.streams_params();
  const bool plenty = row.memory == Memory::kPlenty || row.memory == Memory::kSerialPlenty;
  if (streams || !row.may_keep()) {
    EXPECT_EQ(setup.kept_layers, 0);
  } else if (plenty || row.recompute == schedule::Recompute::kNone) {
    EXPECT_EQ(setup.kept_layers, setup.model->decoder.layers);
  }
  const auto forwards = static_cast<std::int64_t>(seen.records.size()) * setup.micro_batches;
  EXPECT_EQ(seen.count(OpId::kLayerForwardKeep), forwards * setup.kept_layers);
  EXPECT_EQ(seen.count(OpId::kLayerBackwardKept), forwards * setup.kept_layers);
  EXPECT_EQ(seen.count(OpId::kLayerBackward),
            forwards * (setup.model->decoder.layers - setup.kept_layers));
  if (!row.may_keep()) {
    EXPECT_FALSE(setup.keeps_logits);
  } else if (plenty && row.recompute == schedule::Recompute::kNone) {
    EXPECT_TRUE(setup.keeps_logits);
  }
  EXPECT_EQ(seen.count(OpId::kHeadTrainKeep), setup.keeps_logits ? forwards : 0);
  EXPECT_EQ(seen.count(OpId::kHeadTrain), setup.keeps_logits ? 0 : forwards);
}

/// Where there is memory several micro-batches go together; each pass of them fetches a layer that
/// is streamed once forward and once backward.
void expect_sweep(const CrownRow& row, const Observed& seen) {
  const schedule::Setup& setup = seen.plan.setup;
  if (!setup.streams_params() || row.unified()) return;
  const bool plenty = row.memory == Memory::kPlenty || row.memory == Memory::kSerialPlenty;
  if (plenty && setup.micro_batches > 1) {
    EXPECT_GT(setup.sweep, 1);
  }
  std::int64_t fetches = 0;
  for (const prefetch::Op& op : seen.plan.programs.step->ops()) {
    if (schedule::id_of(op) != OpId::kFetchWeights) continue;
    const auto segment = static_cast<std::size_t>(op.where.segment);
    if (setup.model->segments[segment].layer == 0) ++fetches;
  }
  const std::int64_t passes = (setup.micro_batches + setup.sweep - 1) / setup.sweep;
  EXPECT_EQ(fetches, 2 * passes);
}

/// Elements of the runs whose outputs all begin on 64-byte lines: of all but padding.
std::uint64_t elems_on_lines(const schedule::Setup& setup) {
  std::uint64_t elems = 0;
  for (std::size_t s = 0; s < setup.chunks.size(); ++s) {
    for (const zero::Chunk& chunk : setup.chunks[s]) {
      for (const zero::Run& run : zero::runs(setup.model->segments[s], setup.layouts[s], chunk)) {
        if (run.first_elem * size_of(setup.compute) % 64 == 0) elems += run.elems;
      }
    }
  }
  return elems;
}

/// The optimizer's kernels: instruction set, stores, and forks where there are threads.
void expect_kernels(const CrownRow& row, const Observed& seen,
                    const std::map<cpu_adam::Isa, KernelWork>& work) {
  // A device has kernels of its own for what is there.
  const bool device = !gpu::device().unified;
  if (device && row.homes.state == schedule::OptimizerHome::kNone) return;
  ASSERT_EQ(work.size(), 1U);
  ASSERT_EQ(work.begin()->first, row.isa);
  const KernelWork& done = work.begin()->second;
  const bool streams = row.stores == cpu_adam::Stores::kStreaming;
  const auto applied = static_cast<std::uint64_t>(
      std::count(seen.print.skipped.begin(), seen.print.skipped.end(), false));
  EXPECT_EQ(done.streamed, streams ? applied * elems_on_lines(seen.plan.setup) : 0);
  const bool forks = row.kernel_threads > 1;
  const bool large_chunks = row.chunk == ChunkSize::kAuto;
  EXPECT_EQ(done.updates.cut > 0, forks && large_chunks);
  if (device && row.homes.gradient != schedule::GradientHome::kCpu) return;
  // Only the table is large enough, as a whole.
  EXPECT_EQ(done.norms.cut > 0, forks);
  // Of its two contributions an update that is not late makes no sum.
  const bool sums = row.wiring.accumulates || (row.wiring.tied && row.wiring.delayed());
  EXPECT_EQ(done.sums.cut > 0, forks && sums);
}

/// The first update of a step stands behind all gradients, or before the last of them. Where it is
/// late, new weights wait until the old ones are read: in host memory a copy brings them home.
void expect_update(const CrownRow& row, const Observed& seen) {
  const schedule::Setup& setup = seen.plan.setup;
  EXPECT_EQ(setup.update, row.update);
  if (row.update == schedule::Update::kArriving) {
    EXPECT_EQ(setup.sweep, setup.micro_batches);
  }
  const auto& ops = seen.plan.programs.step->ops();
  const auto at = [&](OpId id) { return std::ranges::find(ops, id, schedule::id_of); };
  const auto adam = std::ranges::find_if(ops, schedule::is_adam, schedule::id_of);
  EXPECT_EQ(adam < at(OpId::kEmbedBackward), row.update != schedule::Update::kEnd);
  const auto segments = static_cast<std::int64_t>(setup.model->segments.size());
  const auto decided = static_cast<std::int64_t>(seen.records.size()) * segments;
  EXPECT_EQ(seen.count(OpId::kDecideSegment), row.wiring.clips_segments() ? decided : 0);
  const bool delayed = row.wiring.delayed();
  const auto& homes = row.homes;
  const bool from_host = row.unified() || homes.state != schedule::OptimizerHome::kNone;
  const bool to_host = homes.param == schedule::ParamHome::kCpu ||
                       (row.unified() && homes.param == schedule::ParamHome::kNone);
  EXPECT_EQ(seen.count(OpId::kAdoptWeights) > 0, delayed && from_host && to_host);
  for (const data::StepRecord& record : seen.records) {
    EXPECT_EQ(record.delayed, delayed && record.step > 1);
  }
}

class Crown : public testing::TestWithParam<Wiring> {
 protected:
  const Wiring wiring_ = GetParam();
  const TempFolder folder_;
};

TEST_P(Crown, EveryPlacementGivesTheSameBits) {
  const double clip = clip_threshold(folder_, wiring_);
  const Fingerprint expected = reference(folder_, wiring_, clip);
  ASSERT_EQ(expected.losses.size(), 5U);
  ASSERT_EQ(expected.valid_losses.size(), 3U);
  ASSERT_EQ(std::count(expected.skipped.begin(), expected.skipped.end(), true),
            wiring_.by_segment() ? 0 : 1);
  ASSERT_EQ(expected.skipped[kSpoiledStep], !wiring_.by_segment());
  int clipped = 0, whole = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    clipped += expected.clipped[i] && !expected.skipped[i];
    whole += !expected.clipped[i] && !expected.skipped[i];
  }
  ASSERT_GT(clipped, 0);
  ASSERT_GT(whole, 0);
  if (wiring_.compute == DType::kF16 && !wiring_.by_segment()) {
    ASSERT_EQ(expected.loss_scales, (std::vector<std::int64_t>{1024, 1024, 1024, 2048, 1024}));
  }

  std::uint64_t seed = 1;
  for (const CrownRow& row : crown_rows_of(wiring_, 0)) {
    SCOPED_TRACE(row.name());
    Job job = job_of(folder_, row);
    job.train.gradient_clipping = clip;
    std::string engine;
    job.hooks.wrap_queue = [&](std::unique_ptr<nvme::IoQueue> queue) {
      engine = queue->describe();
      return queue;
    };
    // Ops of microseconds may miss each other on a busy machine, but not in all of these runs.
    constexpr int kRuns = 20;
    Observed seen;
    for (int i = 0; i < kRuns; ++i) {
      take_kernel_work();
      seen = observe(job, disturbance_of(wiring_, seed++));
      EXPECT_EQ(seen.print, expected);
      if (row.memory == Memory::kSerialPlenty || runs_as_its_row_says(row, seen)) break;
    }
    EXPECT_TRUE(runs_as_its_row_says(row, seen));
    EXPECT_EQ(seen.strict, !row.unified());
    if (row.engine != nvme::Engine::kAuto) {
      EXPECT_TRUE(engine.starts_with(name_of(row.engine))) << engine;
    }
    expect_every_op_once(row, seen);
    expect_memory(row, seen);
    expect_copies(row, seen);
    expect_keeping(row, seen);
    expect_sweep(row, seen);
    expect_update(row, seen);
    expect_kernels(row, seen, take_kernel_work());
  }
}

/// Those that there are rows of.
std::vector<Wiring> wirings() {
  std::vector<Wiring> all;
  for (const CrownRow& row : crown_rows(0)) {
    if (std::ranges::find(all, row.wiring) == all.end()) all.push_back(row.wiring);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Wirings, Crown, testing::ValuesIn(wirings()),
                         [](const auto& info) { return name_of(info.param); });

TEST(CrownRows, AreOfEveryWiringButWhereFewAreRun) {
  const std::size_t all = 2 * 3 * 2 * 3;
  EXPECT_GE(wirings().size(), test::by_extent(all, all, 6));
}

/// Of each kind of update, whatever the rows hold.
TEST(CrownSplit, StateWithoutUpperHalvesGivesTheSameBits) {
  using Order = Wiring::Order;
  const TempFolder folder;
  for (const auto& [order, update] : {std::pair(Order::kGlobal, schedule::Update::kEnd),
                                      std::pair(Order::kBySegment, schedule::Update::kEnd),
                                      std::pair(Order::kBySegment, schedule::Update::kArriving),
                                      std::pair(Order::kDelayed, schedule::Update::kDelayed)}) {
    const Wiring wiring{false, DType::kBf16, true, order};
    SCOPED_TRACE(name_of(wiring));
    const double clip = clip_threshold(folder, wiring);
    const Fingerprint expected = reference(folder, wiring, clip);
    Job job = job_of(folder, wiring);
    job.homes = {.offload_param = schedule::ParamHome::kCpu,
                 .offload_gradient = schedule::GradientHome::kCpu,
                 .offload_optimizer = schedule::OptimizerHome::kNvme,
                 .sub_group_size = 48_KiB};
    job.train.gradient_clipping = clip;
    job.optimizer.update = update;
    const Observed seen = observe(job, disturbance_of(wiring, 9));
    EXPECT_EQ(seen.print, expected);
    EXPECT_EQ(seen.plan.setup.update, update);
    EXPECT_GT(seen.count(OpId::kAdamSplit), 0);
  }
}

TEST(CrownKept, SomeLayersKeptAndSomeNotGiveTheSameBits) {
  const TempFolder folder;
  const Wiring wiring{false, DType::kBf16, true};
  const double clip = clip_threshold(folder, wiring);
  const Fingerprint expected = reference(folder, wiring, clip);
  Job job = job_of(folder, wiring);
  job.homes = {.offload_param = schedule::ParamHome::kNone,
               .offload_gradient = schedule::GradientHome::kCpu,
               .offload_optimizer = schedule::OptimizerHome::kCpu,
               .offload_activation = schedule::ActivationHome::kCpu,
               .recompute = schedule::Recompute::kAuto,
               .sub_group_size = 48_KiB};
  job.train.gradient_clipping = clip;
  // Room for one layer beside the serial minimum: what would come first, logits and micro-batches
  // together, takes more.
  Job none = job;
  none.homes.recompute = schedule::Recompute::kEveryLayer;
  const Session least = make_session(none);
  const Bytes layer = round_up(schedule::sizes_of(least.plan().setup).kept, kAlignment);
  limit_gpu(job, least.plan().minimum[index(Tier::kGpu)] + layer);
  const Observed seen = observe(job, {.spoiled_steps = {kSpoiledStep}, .delay_seed = 5});
  EXPECT_EQ(seen.print, expected);
  EXPECT_GT(seen.count(OpId::kLayerBackwardKept), 0);
  EXPECT_GT(seen.count(OpId::kLayerBackward), 0);
}

}  // namespace
}  // namespace sluice::train
