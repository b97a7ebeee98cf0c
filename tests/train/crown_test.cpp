/// The crown test: where the bytes live, and how the program is executed, does not show in the
/// bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/plan/plan.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

enum class GpuTier { kMinimum, kTwoLayersMore, kUnlimited };

/// One point of the cover beside the placement; each axis is an index of its values.
struct Axes {
  std::size_t tied, bf16, micro_batches, overlapped, kernel_threads, gpu_tier;
};
constexpr std::array<std::size_t, 6> kValues = {2, 2, 2, 2, 2, 3};

/// Rows such that any two values of any two axes meet in one: greedy, from every possible row.
std::vector<Axes> pairwise_cover() {
  using Row = std::array<std::size_t, 6>;
  std::vector<Row> all{Row{}};
  for (std::size_t axis = 0; axis < kValues.size(); ++axis) {
    std::vector<Row> longer;
    for (const Row& row : all) {
      for (std::size_t v = 0; v < kValues[axis]; ++v) {
        longer.push_back(row);
        longer.back()[axis] = v;
      }
    }
    all = longer;
  }
  std::map<std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>, bool> met;
  const auto fresh = [&](const Row& row) {
    int n = 0;
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) n += !met.contains({a, row[a], b, row[b]});
    }
    return n;
  };
  std::vector<Axes> cover;
  while (true) {
    const Row best = *std::max_element(
        all.begin(), all.end(), [&](const Row& x, const Row& y) { return fresh(x) < fresh(y); });
    if (fresh(best) == 0) return cover;
    for (std::size_t a = 0; a < best.size(); ++a) {
      for (std::size_t b = a + 1; b < best.size(); ++b) met[{a, best[a], b, best[b]}] = true;
    }
    cover.push_back({best[0], best[1], best[2], best[3], best[4], best[5]});
  }
}

struct Placement {
  schedule::ParamHome param;
  schedule::GradientHome gradient;
  schedule::OptimizerHome state;
};

std::vector<Placement> placements() {
  std::vector<Placement> all;
  for (const auto p : {schedule::ParamHome::kNone, schedule::ParamHome::kCpu}) {
    for (const auto g : {schedule::GradientHome::kNone, schedule::GradientHome::kCpu}) {
      for (const auto s : {schedule::OptimizerHome::kCpu, schedule::OptimizerHome::kNvme}) {
        all.push_back({p, g, s});
      }
    }
  }
  return all;
}

constexpr std::int64_t kSpoiledStep = 3;

Job job_of(const TempFolder& folder, const Axes& axes) {
  Job job = tiny_job(folder, axes.tied != 0 ? tiny_gpt() : tiny_llama());
  job.compute = axes.bf16 != 0 ? DType::kBf16 : DType::kF32;
  job.train.gradient_accumulation_steps = axes.micro_batches != 0 ? 3 : 1;
  job.train.train_batch_size = *job.train.gradient_accumulation_steps * 2;
  return job;
}

/// A clip threshold that some steps of these numbers reach and others do not.
double threshold(const TempFolder& folder, const Axes& axes) {
  Job job = job_of(folder, axes);
  job.train.gradient_clipping = std::nullopt;
  std::vector<double> norms = run(job, {.spoiled_step = kSpoiledStep}).norms;
  std::erase_if(norms, [](double n) { return !(n < 1e300); });
  std::sort(norms.begin(), norms.end());
  return (norms[norms.size() - 2] + norms.back()) / 2;
}

/// The reference of these numbers: serial, everything resident, one thread, no delays.
Fingerprint reference(const TempFolder& folder, const Axes& axes, double clip) {
  Job job = job_of(folder, axes);
  job.homes.offload_param = schedule::ParamHome::kNone;
  job.homes.offload_gradient = schedule::GradientHome::kNone;
  job.homes.offload_optimizer = schedule::OptimizerHome::kCpu;
  job.execution = Execution::kSerial;
  job.train.gradient_clipping = clip;
  return run(job, {.spoiled_step = kSpoiledStep});
}

Bytes gpu_limit(const Job& job, GpuTier tier) {
  if (tier == GpuTier::kUnlimited) return 1_GiB;
  const Session session(job);
  const Bytes minimum = session.plan().minimum[static_cast<std::size_t>(prefetch::Tier::kGpu)];
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

class Crown : public testing::TestWithParam<std::size_t> {
 protected:
  const Axes axes_ = pairwise_cover()[GetParam()];
};

TEST_P(Crown, EveryPlacementGivesTheSameBits) {
  const TempFolder folder;
  const double clip = threshold(folder, axes_);
  const Fingerprint expected = reference(folder, axes_, clip);
  ASSERT_EQ(expected.losses.size(), 5U);
  ASSERT_EQ(std::count(expected.skipped.begin(), expected.skipped.end(), true), 1);
  ASSERT_TRUE(expected.skipped[kSpoiledStep]);
  int clipped = 0;
  for (std::size_t i = 0; i < 5; ++i) clipped += expected.clipped[i] && !expected.skipped[i];
  ASSERT_EQ(clipped, 1);

  std::uint64_t seed = 1;
  for (const Placement& p : placements()) {
    Job job = job_of(folder, axes_);
    job.homes.offload_param = p.param;
    job.homes.offload_gradient = p.gradient;
    job.homes.offload_optimizer = p.state;
    job.train.gradient_clipping = clip;
    job.execution = axes_.overlapped != 0 ? Execution::kOverlapped : Execution::kSerial;
    job.cpu_adam.threads = axes_.kernel_threads != 0 ? 2 : 1;
    job.tiers.gpu.limit = gpu_limit(job, static_cast<GpuTier>(axes_.gpu_tier));
    SCOPED_TRACE(testing::Message()
                 << "param " << static_cast<int>(p.param) << " gradient "
                 << static_cast<int>(p.gradient) << " state " << static_cast<int>(p.state));
    EXPECT_EQ(run(job, {.spoiled_step = kSpoiledStep, .delay_seed = seed++}), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Cover, Crown, testing::Range<std::size_t>(0, pairwise_cover().size()));

TEST(CrownUnified, ElidedCopiesGiveTheSameBits) {
  const TempFolder folder;
  const Axes axes{1, 1, 1, 1, 1, 2};
  const double clip = threshold(folder, axes);
  const Fingerprint expected = reference(folder, axes, clip);
  for (const Placement& p : placements()) {
    Job job = job_of(folder, axes);
    job.homes.offload_param = p.param;
    job.homes.offload_gradient = p.gradient;
    job.homes.offload_optimizer = p.state;
    job.train.gradient_clipping = clip;
    job.tiers.gpu.unified = memory::Unified::kAuto;
    EXPECT_EQ(run(job, {.spoiled_step = kSpoiledStep, .delay_seed = 99}), expected);
  }
}

}  // namespace
}  // namespace sluice::train
