#include "engine/schedule/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/schedule/placements.h"
#include "tests/support/errors.h"

namespace sluice::testing {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;

using Catalog = EveryPlacement;
INSTANTIATE_TEST_SUITE_P(All, Catalog, ::testing::ValuesIn(all_placements()), placement_name);
INSTANTIATE_TEST_SUITE_P(Arriving, Catalog,
                         ::testing::ValuesIn(placements_by_segment(schedule::Update::kArriving)),
                         placement_name);
INSTANTIATE_TEST_SUITE_P(Delayed, Catalog, ::testing::ValuesIn(delayed_placements()),
                         placement_name);

TEST_P(Catalog, HasWholeAlignedSlotsAndATagForEveryPool) {
  const Written run(GetParam());
  ASSERT_EQ(run.catalog.pools.size(), run.catalog.tags.size());
  for (const auto& pool : run.catalog.pools) {
    EXPECT_GT(pool.slot, 0U) << pool.name;
    EXPECT_EQ(pool.slot % kAlignment, 0U) << pool.name;
    EXPECT_EQ(pool.slots, 0U) << pool.name;
  }
}

TEST_P(Catalog, HasNoPoolThatNoProgramUses) {
  const Written run(GetParam());
  for (const auto& pool : minimum_pools(run)) EXPECT_GT(pool.slots, 0U) << pool.name;
}

TEST_P(Catalog, WastesLessThanAPagePerSlot) {
  const Written run(GetParam());
  const auto look = [&](const prefetch::BufferTable& table) {
    for (const auto id : table.roots()) {
      const auto& buffer = table.info(id);
      const auto& pool = run.catalog.pools[buffer.pool];
      EXPECT_LE(buffer.bytes, pool.slot);
      // Norms share one pool, whatever the segment: they are a few bytes per grain. So do split
      // states that are put together: no step has one.
      const bool shared =
          buffer.pool == run.catalog.norms || buffer.pool == run.catalog.whole_states;
      if (!shared) {
        EXPECT_LT(pool.slot - buffer.bytes, kAlignment) << pool.name;
      }
    }
  };
  look(*run.catalog.residents);
  for (const auto& program : run.programs()) look(program->transients());
}

TEST_P(Catalog, CutsTheWeightsAtHomeAtTheChunksOfTheOptimizer) {
  const Written run(GetParam());
  constexpr std::array kHomes = {Tier::kGpu, Tier::kCpu, Tier::kNvme};
  const Tier home = kHomes[static_cast<std::size_t>(GetParam().param)];
  for (std::size_t s = 0; s < run.setup.layouts.size(); ++s) {
    const auto param = run.catalog.params[s];
    const auto& info = run.catalog.residents->info(param);
    EXPECT_EQ(run.catalog.pools[info.pool].tier, home);
    EXPECT_EQ(info.bytes, run.setup.layouts[s].elems * size_of(run.setup.compute));
    const auto& chunks = run.setup.chunks[s];
    ASSERT_EQ(run.catalog.param_parts[s].size(), chunks.size());
    ASSERT_EQ(run.catalog.states[s].size(), chunks.size());
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const auto part = run.catalog.param_parts[s][c];
      EXPECT_EQ(run.catalog.residents->root(part), param);
      EXPECT_EQ(run.catalog.residents->offset(part),
                chunks[c].first_elem * size_of(run.setup.compute));
      EXPECT_EQ(run.catalog.residents->info(run.catalog.states[s][c]).bytes,
                chunks[c].elems * (GetParam().splits() ? 10U : 12U));
    }
  }
}

TEST(Setup, CutsSegmentsIntoChunksOfTheSubGroupSize) {
  const schedule::Setup setup = setup_of({});
  bool several = false;
  for (std::size_t s = 0; s < setup.chunks.size(); ++s) {
    std::uint64_t elems = 0;
    for (const auto& chunk : setup.chunks[s]) {
      EXPECT_LE(chunk.elems * zero::kStateBytesPerElem, 192_KiB);
      elems += chunk.elems;
    }
    EXPECT_EQ(elems, setup.layouts[s].elems);
    several = several || setup.chunks[s].size() > 2;
  }
  EXPECT_TRUE(several);
}

TEST(Setup, WithMoreChunksThanCanBePlannedIsRefusedWithTheFix) {
  shape::Model model = tiny_model(TinyModel::kLlama);
  model.segments[0].tensors[0].shape = {std::int64_t{1} << 34, 4};
  test::expect_error(Errc::kBudget, {"raise zero_optimization.sub_group_size"},
                     [&] { schedule::make_setup(std::move(model), {.sub_group_size = 48_KiB}); });
}

TEST(Setup, HasGradientsWhereTheOptimizerWorksUnlessTheyAreAskedElsewhere) {
  using schedule::GradientHome;
  using schedule::OptimizerHome;
  const auto home = [](OptimizerHome state, std::optional<GradientHome> asked) {
    return schedule::make_setup(tiny_model(TinyModel::kLlama),
                                {.offload_gradient = asked, .offload_optimizer = state})
        .homes.offload_gradient;
  };
  EXPECT_EQ(home(OptimizerHome::kNone, std::nullopt), GradientHome::kNone);
  EXPECT_EQ(home(OptimizerHome::kCpu, std::nullopt), GradientHome::kCpu);
  EXPECT_EQ(home(OptimizerHome::kNvme, std::nullopt), GradientHome::kCpu);
  EXPECT_EQ(home(OptimizerHome::kNone, GradientHome::kCpu), GradientHome::kCpu);
  EXPECT_EQ(home(OptimizerHome::kCpu, GradientHome::kNone), GradientHome::kNone);
}

TEST(Setup, CountsATiedEmbeddingTwice) {
  EXPECT_EQ(gradient_route(setup_of({.model = TinyModel::kTiedGpt}), 0).uses, 2);
  EXPECT_EQ(gradient_route(setup_of({.model = TinyModel::kLlama}), 0).uses, 1);
}

TEST(Setup, StreamsWeightsFromHostMemoryToASeparateDeviceAndFromNvmeAlways) {
  Placement p;
  EXPECT_TRUE(setup_of(p).streams_params());
  p.sharing = schedule::Sharing::kUnified;
  EXPECT_FALSE(setup_of(p).streams_params());
  p.param = schedule::ParamHome::kNvme;
  EXPECT_TRUE(setup_of(p).streams_params());
  p.sharing = schedule::Sharing::kSeparate;
  p.param = schedule::ParamHome::kNone;
  EXPECT_FALSE(setup_of(p).streams_params());
}

TEST(Setup, KeepsTheLastLayersAndNeverTheHead) {
  Placement p;
  p.param = schedule::ParamHome::kNone;
  p.kept_layers = 2;
  const schedule::Setup setup = setup_of(p);  // embedding, three layers, head
  EXPECT_TRUE(setup.may_keep());
  std::vector<bool> kept;
  for (int b = 0; b < 5; ++b) kept.push_back(setup.keeps(b));
  EXPECT_EQ(kept, (std::vector<bool>{false, false, true, true, false}));
}

TEST(Setup, KeepsEveryLayerWhenNoneIsToBeRunAgain) {
  const schedule::Setup setup = schedule::make_setup(tiny_model(TinyModel::kLlama),
                                                     {.recompute = schedule::Recompute::kNone});
  EXPECT_EQ(setup.kept_layers, 3);
}

TEST(Sizes, ANormHasADoublePerGrainOfTheLargestSegment) {
  const schedule::Setup setup = setup_of({.model = TinyModel::kLlama});
  std::uint64_t grains = 0;
  for (const auto& layout : setup.layouts) grains = std::max(grains, layout.elems / kGrainElems);
  EXPECT_EQ(sizes_of(setup).norms, grains * 8);
}

}  // namespace
}  // namespace sluice::testing
