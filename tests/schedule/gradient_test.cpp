// How gradients become the ones that the norm and the optimizer see, on every placement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

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
using ::testing::ElementsAre;

using Gradient = EveryPlacement;
INSTANTIATE_TEST_SUITE_P(All, Gradient, ::testing::ValuesIn(all_placements()), placement_name);

/// How many blocks of the tiny models name a segment.
int uses_of(const Written& run, int segment) {
  return run.setup.model->decoder.tied_embeddings && segment == 0 ? 2 : 1;
}

/// The compute dtype of a single contribution of each use, fp32 of a sum.
DType dtype_of(const Written& run) {
  return run.setup.micro_batches == 1 ? run.setup.compute : DType::kF32;
}

/// It has one contribution of each of its two uses.
bool has_one_of_each(const Written& run, int segment) {
  return uses_of(run, segment) == 2 && run.setup.micro_batches == 1;
}

/// How many terms what the norm and the optimizer read of it has.
std::size_t terms_of(const Written& run, int segment) {
  return has_one_of_each(run, segment) ? 2 : 1;
}

std::vector<BufferId> gradients_of(const Op& op) {
  std::vector<BufferId> found;
  for (std::size_t i = 0; i < op.reads.size(); ++i) {
    if (schedule::read_name(op, i) == Operand::kGradient) found.push_back(op.reads[i]);
  }
  return found;
}

/// Sums of a segment, in program order.
std::vector<Op> sums_of(const Script& step, int segment) {
  std::vector<Op> found;
  for (const Op& op : step.ops()) {
    const OpId id = schedule::id_of(op);
    const bool sums = id == OpId::kStartSum || id == OpId::kAccumulate;
    if (sums && op.where.segment == segment) found.push_back(op);
  }
  return found;
}

/// The gradient that the optimizer reads of a segment.
BufferId final_gradient(const Script& step, int segment) {
  return buffer_of(step.of(OpId::kNorm, segment).at(0), Operand::kGradient);
}

TEST_P(Gradient, IsSummedOverMicroBatchesAndUsesOneByOneInOrder) {
  const Written run(GetParam());
  const Script step(run.step);
  for (int s = 0; s < run.segments(); ++s) {
    const int uses = uses_of(run, s);
    const auto contributions = GetParam().micro_batches * uses;
    if (has_one_of_each(run, s)) continue;
    const auto adds = sums_of(step, s);
    ASSERT_EQ(adds.size(), contributions > 1 ? static_cast<std::size_t>(contributions) : 0U) << s;
    std::map<BufferId, int> next;  // contribution, by sum
    for (const Op& add : adds) {
      const BufferId sum = buffer_of(add, Operand::kSum);
      const int i = next[sum]++;
      const int mb = GetParam().micro_batches == 1 ? 0 : i;
      EXPECT_EQ(add.where.micro_batch, mb);
      EXPECT_EQ(step.maker(buffer_of(add, Operand::kContribution)).where.micro_batch, mb);
      // The first is assigned, so that no zeros are added.
      EXPECT_EQ(schedule::id_of(add), i == 0 ? OpId::kStartSum : OpId::kAccumulate);
      EXPECT_EQ(std::ranges::count(add.reads, sum), i == 0 ? 0 : 1);
      EXPECT_THAT(add.writes, ElementsAre(sum));
      EXPECT_EQ(run.step->info(sum).bytes, run.setup.segment_elems(s) * sizeof(float));
    }
    EXPECT_EQ(next.size(), adds.empty() ? 0U : static_cast<std::size_t>(uses));
  }
}

/// With several micro-batches: each use has a sum until both are whole.
TEST_P(Gradient, OfATiedWeightAddsTheHeadsUseToTheEmbeddings) {
  const Written run(GetParam());
  const Script step(run.step);
  const bool tied = GetParam().model == TinyModel::kTiedGpt;
  const auto adds = step.of(OpId::kAddUses);
  ASSERT_EQ(adds.size(), tied && !has_one_of_each(run, 0) ? 1U : 0U);
  for (const Op& add : adds) {
    EXPECT_EQ(add.where.segment, 0);
    const auto use = [&](BufferId sum) {
      return schedule::id_of(step.maker(buffer_of(step.definer(sum), Operand::kContribution)));
    };
    const BufferId sum = buffer_of(add, Operand::kSum);
    EXPECT_EQ(use(sum), OpId::kEmbedBackward);
    EXPECT_EQ(use(buffer_of(add, Operand::kOtherUse)), head_of(GetParam()));
    EXPECT_EQ(std::ranges::count(add.reads, sum), 1);
    EXPECT_THAT(add.writes, ElementsAre(sum));
    EXPECT_EQ(final_gradient(step, 0), sum);
  }
}

/// With one: both stay as they are, and the norm and the optimizer read both, embedding first.
TEST_P(Gradient, OfATiedWeightIsTheSumOfTwoTermsWhichNobodyWrites) {
  const Written run(GetParam());
  if (!has_one_of_each(run, 0)) return;
  const Script step(run.step);
  EXPECT_TRUE(sums_of(step, 0).empty());
  const Tier home = GetParam().gradient_on_device() ? Tier::kGpu : Tier::kCpu;
  const auto terms = gradients_of(step.of(OpId::kNorm, 0).at(0));
  ASSERT_EQ(terms.size(), 2U);
  EXPECT_EQ(schedule::id_of(step.maker(terms[0])), OpId::kEmbedBackward);
  EXPECT_EQ(schedule::id_of(step.maker(terms[1])), head_of(GetParam()));
  const Op norm = step.of(OpId::kNorm, 0).at(0);
  const Op adam = step.of(schedule::adam_of(run.setup), 0).at(0);
  const auto elem = static_cast<double>(size_of(run.setup.compute));
  EXPECT_EQ(norm.cost.bytes, 2 * elem * static_cast<double>(run.setup.segment_elems(0)));
  const auto chunk = static_cast<double>(run.setup.chunks.front().front().elems);
  EXPECT_EQ(adam.cost.bytes, chunk * (zero::kUpdateBytesPerElem + elem)) << "read beside the other";
  for (const BufferId term : terms) {
    EXPECT_EQ(run.catalog.pools[run.step->info(term).pool].tier, home) << "both wait there";
  }
  const auto& table = run.step->transients();
  for (const BufferId root : table.roots()) {
    if (table.info(root).tag != prefetch::MemoryTag::kGradient) continue;
    EXPECT_LT(table.info(root).bytes, run.setup.segment_elems(0) * sizeof(float));
  }
}

/// What a delayed step leaves is one sum: the head's contribution waits until the embedding's
/// begins it.
TEST(DelayedGradient, OfATiedWeightIsBegunByTheEmbeddings) {
  for (const Placement& p : delayed_placements()) {
    const Written run(p);
    if (!has_one_of_each(run, 0)) continue;
    SCOPED_TRACE(p.name());
    const Script step(run.step);
    const auto sums = sums_of(step, 0);
    ASSERT_EQ(sums.size(), 2U);
    const auto made_by = [&](const Op& sum) {
      return schedule::id_of(step.maker(buffer_of(sum, Operand::kContribution)));
    };
    EXPECT_EQ(schedule::id_of(sums[0]), OpId::kStartSum);
    EXPECT_EQ(made_by(sums[0]), OpId::kEmbedBackward);
    EXPECT_EQ(schedule::id_of(sums[1]), OpId::kAccumulate);
    EXPECT_EQ(made_by(sums[1]), head_of(p));
    for (const Op& sum : sums) EXPECT_EQ(buffer_of(sum, Operand::kSum), run.catalog.pending[0]);
    EXPECT_EQ(step.count(OpId::kAddUses), 0U);
  }
}

TEST_P(Gradient, HasOneNormPerSegmentWhichDecideListsInSegmentOrder) {
  const Written run(GetParam());
  const Script step(run.step);
  const Op decide = step.only(OpId::kDecide);
  const auto mbs = static_cast<std::size_t>(GetParam().micro_batches);
  const auto segments = static_cast<std::size_t>(run.segments());
  ASSERT_EQ(decide.reads.size(), 1 + mbs + segments);
  EXPECT_EQ(decide.reads[0], run.catalog.control);
  EXPECT_EQ(decide.writes[0], run.catalog.control);
  for (std::size_t mb = 0; mb < mbs; ++mb) {
    const Op& head = step.maker(decide.reads[1 + mb]);
    EXPECT_EQ(schedule::id_of(head), head_of(GetParam()));
    EXPECT_EQ(head.where.micro_batch, static_cast<int>(mb));
  }
  for (std::size_t s = 0; s < segments; ++s) {
    const BufferId norms = decide.reads[1 + mbs + s];
    const Op& norm = step.maker(norms);
    EXPECT_EQ(schedule::id_of(norm), OpId::kNorm);
    EXPECT_EQ(norm.where.segment, static_cast<int>(s));
    EXPECT_EQ(run.step->info(norms).bytes,
              run.setup.layouts[s].elems / kGrainElems * sizeof(double));
    EXPECT_EQ(step.of(OpId::kNorm, static_cast<int>(s)).size(), 1U);
  }
}

TEST_P(Gradient, IsFinishedBeforeItsNormIsTaken) {
  const Written run(GetParam());
  const auto& ops = run.step->ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (schedule::id_of(ops[i]) != OpId::kNorm) continue;
    const int s = ops[i].where.segment;
    const std::vector<BufferId> terms = gradients_of(ops[i]);
    EXPECT_EQ(terms.size(), terms_of(run, s));
    for (const BufferId gradient : terms) {
      EXPECT_EQ(run.step->info(gradient).bytes,
                run.setup.segment_elems(s) * size_of(dtype_of(run)));
      for (std::size_t j = i + 1; j < ops.size(); ++j) {
        EXPECT_EQ(std::ranges::count(ops[j].writes, gradient), 0) << describe(ops[j]);
      }
    }
  }
}

TEST_P(Gradient, LivesAndIsSummedInItsHome) {
  const Written run(GetParam());
  const Script step(run.step);
  const Tier home = GetParam().gradient_on_device() ? Tier::kGpu : Tier::kCpu;
  const LaneKind lane = GetParam().gradient_on_device() ? LaneKind::kCompute : LaneKind::kCpu;
  for (int s = 0; s < run.segments(); ++s) {
    const auto& info = run.step->info(final_gradient(step, s));
    EXPECT_EQ(run.catalog.pools[info.pool].tier, home);
  }
  for (const OpId id : {OpId::kStartSum, OpId::kAccumulate, OpId::kAddUses, OpId::kNorm}) {
    for (const Op& op : step.of(id)) EXPECT_EQ(op.lane, schedule::lane_of(lane)) << describe(op);
  }
}

TEST_P(Gradient, ReachesTheOptimizerChunkByChunkAsAPartOrAsACopyOfOne) {
  const Written run(GetParam());
  const Script step(run.step);
  const bool to_host = GetParam().gradient_on_device();
  const bool copied = to_host != GetParam().state_on_device() && GetParam().separate();
  for (const Op& adam : step.of(schedule::adam_of(run.setup))) {
    const auto s = static_cast<std::size_t>(adam.where.segment);
    const auto& chunk = run.setup.chunks[s][static_cast<std::size_t>(adam.where.chunk)];
    const Bytes elem = size_of(dtype_of(run));
    const auto whole = gradients_of(step.of(OpId::kNorm, adam.where.segment).at(0));
    const auto parts = gradients_of(adam);
    ASSERT_EQ(parts.size(), whole.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      BufferId part = parts[i];
      EXPECT_EQ(run.step->info(part).bytes, chunk.elems * elem);
      if (copied) {
        const Op& copy = step.definer(part);
        EXPECT_EQ(schedule::id_of(copy), to_host ? OpId::kOffloadGradient : OpId::kFetchGradient);
        EXPECT_EQ(copy.where.chunk, adam.where.chunk);
        part = buffer_of(copy, Operand::kSource);
        EXPECT_EQ(run.step->info(part).bytes, chunk.elems * elem);
      }
      EXPECT_EQ(run.step->root(part), whole[i]) << "in the same order";
      EXPECT_EQ(run.step->table(part).offset(part), chunk.first_elem * elem);
    }
  }
}

TEST_P(Gradient, CrossesTheLinkOncePerContributionOrOncePerChunk) {
  const Written run(GetParam());
  const Script step(run.step);
  std::size_t contributions = 0;
  for (int s = 0; s < run.segments(); ++s) {
    contributions += static_cast<std::size_t>(GetParam().micro_batches * uses_of(run, s));
  }
  const bool from_device = GetParam().gradient_on_device();
  std::size_t offloaded = 0, fetched = 0;
  if (GetParam().separate()) {
    std::size_t chunks = 0;  // of each term
    for (const Op& adam : step.of(schedule::adam_of(run.setup)))
      chunks += terms_of(run, adam.where.segment);
    const bool to_device = GetParam().state_on_device();
    if (from_device && !to_device) offloaded = chunks;
    if (!from_device) offloaded = contributions;
    if (!from_device && to_device) fetched = chunks;
  }
  EXPECT_EQ(step.count(OpId::kFetchGradient), fetched);
  EXPECT_EQ(step.count(OpId::kOffloadGradient), offloaded);
}

TEST(GradientDType, IsTheComputeTypeOfASingleContributionAndFp32OfASum) {
  Placement p;
  p.micro_batches = 1;
  schedule::Setup setup = setup_of(p);
  EXPECT_EQ(schedule::gradient_route(setup, 0).dtype, DType::kBf16);  // tied: of each term
  EXPECT_EQ(schedule::gradient_route(setup, 2).dtype, DType::kBf16);  // a layer
  setup.micro_batches = 2;
  EXPECT_EQ(schedule::gradient_route(setup, 2).dtype, DType::kF32);
  setup.micro_batches = 1;
  setup.grad_dtype = schedule::GradDType::kF32;
  EXPECT_EQ(schedule::gradient_route(setup, 2).dtype, DType::kF32);
}

TEST(GradientDType, OfAlwaysFp32SumsEvenASingleContribution) {
  Placement p;
  p.micro_batches = 1;
  p.model = TinyModel::kLlama;
  schedule::Setup setup = setup_of(p);
  setup.grad_dtype = schedule::GradDType::kF32;
  const schedule::Catalog catalog = schedule::make_catalog(setup);
  const Script step(schedule::step_program(setup, catalog));
  EXPECT_EQ(step.count(OpId::kStartSum), setup.model->segments.size());
}

}  // namespace
}  // namespace sluice::testing
