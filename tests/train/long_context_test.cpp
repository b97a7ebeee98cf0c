/// Long sequences in little device memory: an 8-billion Llama with 131,072 tokens per sequence, at
/// a 32nd of its widths and of its length, so in a 1024th of 24 GiB.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/shape/presets.h"
#include "tests/support/errors.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kScale = 32;
constexpr std::int64_t kTokens = 131072 / kScale;

/// `layers`: the device holds no more for many than for three.
shape::Decoder scaled_llama_8b(std::int64_t layers) {
  shape::Decoder d = shape::find_preset("llama-8b");
  d.vocab /= kScale;
  d.hidden /= kScale;
  d.intermediate /= kScale;
  // Half as many heads, a 16th as wide: the host may widen a quarter of them at a time.
  d.heads /= 2;
  d.kv_heads /= 2;
  d.head_dim /= kScale / 2;
  d.max_positions = kTokens;
  d.layers = layers;
  return d;
}

class LongContext : public testing::Test {
 protected:
  Job job(std::int64_t layers) const {
    Job job = tiny_job(folder_, scaled_llama_8b(layers));
    job.data.seq_len = kTokens;
    job.train.steps = 1;
    job.train.train_micro_batch_size_per_gpu = job.train.train_batch_size = 1;
    job.compute = DType::kBf16;
    job.mlp_chunk = shape::auto_mlp_chunk(shape::find_preset("llama-8b"), 131072) / kScale;
    job.loss_chunk = shape::auto_loss_chunk(shape::find_preset("llama-8b"), 131072) / kScale;
    job.homes.offload_activation = schedule::ActivationHome::kCpu;
    job.homes.sub_group_size = std::nullopt;
    job.tiers.gpu.limit = 24_GiB / (kScale * kScale);
    return job;
  }
  TempFolder folder_;
};

TEST_F(LongContext, FitsAndTrains) {
  write_tokens(folder_ / "tokens.bin", 3 * kTokens, 4000);
  const Observed seen = observe(job(3));
  ASSERT_EQ(seen.print.losses.size(), 1U);
  EXPECT_TRUE(std::isfinite(seen.print.losses.front()));
  EXPECT_FALSE(seen.print.skipped.front());
}

TEST_F(LongContext, WithItsMlpAtOnceDoesNotFit) {
  write_tokens(folder_ / "tokens.bin", 3 * kTokens, 4000);
  Job whole = job(3);
  whole.mlp_chunk = kTokens;
  EXPECT_EQ(test::error_of([&] { make_session(whole); }).code, Errc::kBudget);
}

TEST_F(LongContext, MoreLayersTakeNoMoreOfTheDevice) {
  write_tokens(folder_ / "tokens.bin", 3 * kTokens, 4000);
  const auto minimum = [&](std::int64_t layers) {
    return make_session(job(layers)).plan().minimum[index(prefetch::Tier::kGpu)];
  };
  EXPECT_EQ(minimum(32), minimum(3));
}

}  // namespace
}  // namespace sluice::train
