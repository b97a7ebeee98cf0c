/// The crown test: where the bytes live, and how the program is executed, does not show in the
/// bits.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/plan/plan.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

struct Placement {
  schedule::ParamHome param;
  schedule::GradientHome gradient;
  schedule::OptimizerHome state;
  schedule::ActivationHome activation;
  schedule::Recompute recompute;

  std::string name() const {
    return fmt::format("param {} gradient {} state {} activation {} recompute {}",
                       static_cast<int>(param), static_cast<int>(gradient), static_cast<int>(state),
                       static_cast<int>(activation), static_cast<int>(recompute));
  }
};

/// All of them; layers are kept only where weights are resident.
std::vector<Placement> placements() {
  using schedule::ActivationHome;
  using schedule::GradientHome;
  using schedule::OptimizerHome;
  using schedule::ParamHome;
  using schedule::Recompute;
  std::vector<Placement> all;
  for (const auto p : {ParamHome::kNone, ParamHome::kCpu, ParamHome::kNvme}) {
    for (const auto g : {GradientHome::kNone, GradientHome::kCpu}) {
      for (const auto s : {OptimizerHome::kCpu, OptimizerHome::kNvme}) {
        for (const auto a : {ActivationHome::kNone, ActivationHome::kCpu, ActivationHome::kNvme}) {
          all.push_back({p, g, s, a, Recompute::kEveryLayer});
          if (p == ParamHome::kNone) all.push_back({p, g, s, a, Recompute::kAuto});
        }
      }
    }
  }
  return all;
}

enum class GpuTier : std::size_t { kMinimum, kTwoLayersMore, kUnlimited };

/// The axes of a run, each an index of its values. The first three are its wiring.
enum Axis { kTied, kBf16, kMicroBatches, kOverlapped, kKernelThreads, kGpuTier, kPlacement };
using Row = std::array<std::size_t, 7>;

/// Rows such that any two values of any two axes meet in one: greedy, from every possible row.
/// Placement is an axis, so each meets every value of every other axis; but layers are kept only
/// where there is room for them.
std::vector<Row> pairwise_cover() {
  const Row values = {2, 2, 2, 2, 2, 3, placements().size()};
  std::vector<Row> all{Row{}};
  for (std::size_t axis = 0; axis < values.size(); ++axis) {
    std::vector<Row> longer;
    for (const Row& row : all) {
      for (std::size_t v = 0; v < values[axis]; ++v) {
        longer.push_back(row);
        longer.back()[axis] = v;
      }
    }
    all = longer;
  }
  std::erase_if(all, [](const Row& row) {
    return placements()[row[kPlacement]].recompute == schedule::Recompute::kAuto &&
           row[kGpuTier] != static_cast<std::size_t>(GpuTier::kUnlimited);
  });
  std::shuffle(all.begin(), all.end(), std::mt19937(1));  // ties fall on all numbers alike
  std::set<std::array<std::size_t, 4>> met;
  const auto pairs = [](const Row& row) {
    std::vector<std::array<std::size_t, 4>> all_pairs;
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) all_pairs.push_back({a, row[a], b, row[b]});
    }
    return all_pairs;
  };
  std::vector<Row> cover;
  while (true) {
    std::size_t most = 0;
    Row best{};
    for (const Row& row : all) {
      const auto of_row = pairs(row);
      const auto fresh = static_cast<std::size_t>(std::count_if(
          of_row.begin(), of_row.end(), [&](const auto& p) { return !met.contains(p); }));
      if (fresh > most) {
        most = fresh;
        best = row;
      }
    }
    if (most == 0) return cover;
    for (const auto& p : pairs(best)) met.insert(p);
    cover.push_back(best);
  }
}

/// What fixes the bits of a run.
struct Wiring {
  bool tied, bf16, accumulates;
};

constexpr std::int64_t kSpoiledStep = 3;

Job job_of(const TempFolder& folder, const Wiring& wiring) {
  Job job = tiny_job(folder, wiring.tied ? tiny_gpt() : tiny_llama());
  job.compute = wiring.bf16 ? DType::kBf16 : DType::kF32;
  job.train.gradient_accumulation_steps = wiring.accumulates ? 3 : 1;
  job.train.train_batch_size = *job.train.gradient_accumulation_steps * 2;
  return job;
}

void place(Job& job, const Placement& p) {
  job.homes.offload_param = p.param;
  job.homes.offload_gradient = p.gradient;
  job.homes.offload_optimizer = p.state;
  job.homes.offload_activation = p.activation;
  job.homes.recompute = p.recompute;
}

/// A clip threshold that some steps of these numbers reach and others do not.
double threshold(const TempFolder& folder, const Wiring& wiring) {
  Job job = job_of(folder, wiring);
  job.train.gradient_clipping = std::nullopt;
  std::vector<double> norms = run(job, {.spoiled_step = kSpoiledStep}).norms;
  std::erase_if(norms, [](double n) { return !(n < 1e300); });
  std::sort(norms.begin(), norms.end());
  return (norms[norms.size() - 2] + norms.back()) / 2;
}

/// The reference of these numbers: serial, everything resident, one thread, no delays.
Fingerprint reference(const TempFolder& folder, const Wiring& wiring, double clip) {
  Job job = job_of(folder, wiring);
  place(job,
        {schedule::ParamHome::kNone, schedule::GradientHome::kNone, schedule::OptimizerHome::kCpu,
         schedule::ActivationHome::kNone, schedule::Recompute::kEveryLayer});
  job.execution = Execution::kSerial;
  job.train.gradient_clipping = clip;
  return run(job, {.spoiled_step = kSpoiledStep});
}

Bytes gpu_limit(Job job, GpuTier tier) {
  if (tier == GpuTier::kUnlimited) return 1_GiB;
  job.homes.recompute = schedule::Recompute::kEveryLayer;  // what is kept is no part of the minimum
  const Session session(job);
  const Bytes minimum = session.plan().minimum[index(prefetch::Tier::kGpu)];
  if (tier == GpuTier::kMinimum) return minimum;
  Bytes layer = 0;  // the largest slot of weights in the tier
  for (std::size_t i = 0; i < session.plan().catalog.pools.size(); ++i) {
    const prefetch::Pool& pool = session.plan().catalog.pools[i];
    if (pool.tier == prefetch::Tier::kGpu &&
        session.plan().catalog.tags[i] == prefetch::MemoryTag::kParam) {
      layer = std::max(layer, pool.slot);
    }
  }
  return minimum + 2 * layer;
}

class Crown : public testing::TestWithParam<std::tuple<bool, bool, bool>> {
 protected:
  const Wiring wiring_{std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())};
};

TEST_P(Crown, EveryPlacementGivesTheSameBits) {
  const TempFolder folder;
  const double clip = threshold(folder, wiring_);
  const Fingerprint expected = reference(folder, wiring_, clip);
  ASSERT_EQ(expected.losses.size(), 5U);
  ASSERT_EQ(std::count(expected.skipped.begin(), expected.skipped.end(), true), 1);
  ASSERT_TRUE(expected.skipped[kSpoiledStep]);
  int clipped = 0;
  for (std::size_t i = 0; i < 5; ++i) clipped += expected.clipped[i] && !expected.skipped[i];
  ASSERT_EQ(clipped, 1);

  std::uint64_t seed = 1;
  for (const Row& row : pairwise_cover()) {
    const Wiring of_row{row[kTied] != 0, row[kBf16] != 0, row[kMicroBatches] != 0};
    if (std::tie(of_row.tied, of_row.bf16, of_row.accumulates) !=
        std::tie(wiring_.tied, wiring_.bf16, wiring_.accumulates)) {
      continue;
    }
    Job job = job_of(folder, wiring_);
    const Placement p = placements()[row[kPlacement]];
    place(job, p);
    job.train.gradient_clipping = clip;
    job.execution = row[kOverlapped] != 0 ? Execution::kOverlapped : Execution::kSerial;
    job.cpu_adam.threads = row[kKernelThreads] != 0 ? 2 : 1;
    job.tiers.gpu.limit = gpu_limit(job, static_cast<GpuTier>(row[kGpuTier]));
    if (p.recompute == schedule::Recompute::kAuto) {
      EXPECT_EQ(Session(job).plan().setup.kept_layers, job.decoder.layers) << p.name();
    }
    EXPECT_EQ(run(job, {.spoiled_step = kSpoiledStep, .delay_seed = seed++}), expected)
        << p.name() << " overlapped " << row[kOverlapped] << " threads " << row[kKernelThreads]
        << " gpu tier " << row[kGpuTier];
  }
}

INSTANTIATE_TEST_SUITE_P(Wiring, Crown,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

TEST(CrownUnified, ElidedCopiesGiveTheSameBits) {
  const TempFolder folder;
  const Wiring wiring{true, true, true};
  const double clip = threshold(folder, wiring);
  const Fingerprint expected = reference(folder, wiring, clip);
  for (Placement p : placements()) {
    Job job = job_of(folder, wiring);
    // Weights in host memory are resident here, so these layers are kept.
    if (p.param == schedule::ParamHome::kCpu) p.recompute = schedule::Recompute::kAuto;
    place(job, p);
    job.train.gradient_clipping = clip;
    job.tiers.gpu.unified = memory::Unified::kAuto;
    EXPECT_EQ(run(job, {.spoiled_step = kSpoiledStep, .delay_seed = 99}), expected) << p.name();
  }
}

TEST(CrownKept, SomeLayersKeptAndSomeNotGiveTheSameBits) {
  const TempFolder folder;
  const Wiring wiring{false, true, true};
  const double clip = threshold(folder, wiring);
  const Fingerprint expected = reference(folder, wiring, clip);
  Job job = job_of(folder, wiring);
  place(job,
        {schedule::ParamHome::kNone, schedule::GradientHome::kCpu, schedule::OptimizerHome::kCpu,
         schedule::ActivationHome::kCpu, schedule::Recompute::kAuto});
  job.train.gradient_clipping = clip;
  const Session roomy(job);
  const auto tags = roomy.plan().catalog.tags;
  const auto tag = std::find(tags.begin(), tags.end(), prefetch::MemoryTag::kKept);
  ASSERT_NE(tag, tags.end());
  const auto& pool = roomy.plan().catalog.pools[static_cast<std::size_t>(tag - tags.begin())];
  Job none = job;
  none.homes.recompute = schedule::Recompute::kEveryLayer;
  job.tiers.gpu.limit = Session(none).plan().planned[0] + 2 * pool.slot;
  const std::int64_t kept = Session(job).plan().setup.kept_layers;
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, job.decoder.layers);
  EXPECT_EQ(run(job, {.spoiled_step = kSpoiledStep, .delay_seed = 5}), expected);
}

}  // namespace
}  // namespace sluice::train
