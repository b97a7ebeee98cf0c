/// Runs whose loss is scaled on its way back, on the real model: the stand-ins' gradients are not
/// linear in it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

using testing::HasSubstr;

class ScaledRuns : public testing::Test {
 protected:
  ScaledRuns() : job_(tiny_job(folder_, tiny_gpt())) {
    job_.train.gradient_accumulation_steps = 3;
    job_.train.train_batch_size = 6;
    job_.data.valid = job_.data.train;
  }
  const TempFolder folder_;
  Job job_;
};

/// fp32 has room for the scale in its exponent: all that is computed is the multiple, exactly.
TEST_F(ScaledRuns, InFp32AreTheSameBits) {
  const Fingerprint expected = run(job_);
  ASSERT_TRUE(std::ranges::count(expected.clipped, true) > 0);
  for (const std::int64_t scale : {std::int64_t{2}, std::int64_t{1} << 16}) {
    job_.loss_scale = {.fixed = scale};
    EXPECT_EQ(run(job_), expected) << scale;
  }
  job_.loss_scale = {.fixed = std::nullopt, .window = 1};  // another one in every step
  EXPECT_EQ(run(job_), expected);
}

TEST_F(ScaledRuns, InFp32AreTheSameBitsWhereUpdatesArrive) {
  job_.train.clip_scope = ClipScope::kSegment;
  job_.train.on_nonfinite = OnNonFinite::kStop;
  job_.optimizer.update = schedule::Update::kArriving;
  job_.train.gradient_clipping = 0.5;
  const Fingerprint expected = run(job_);
  ASSERT_TRUE(std::ranges::count(expected.clipped, true) > 0);
  job_.loss_scale = {.fixed = std::int64_t{1} << 16};
  EXPECT_EQ(run(job_), expected);
}

/// What overflows is skipped until it does not, however long that takes.
TEST_F(ScaledRuns, InFp16FindTheirScale) {
  job_.compute = DType::kF16;
  job_.train.steps = 40;
  job_.train.max_skips = 1;
  job_.loss_scale = {.fixed = std::nullopt, .initial_power = 32};
  const Fingerprint found = run(job_);
  const auto skipped = std::ranges::count(found.skipped, true);
  EXPECT_GT(skipped, 5);
  EXPECT_LT(skipped, 30);
  for (std::size_t i = 0; i + 1 < found.skipped.size(); ++i) {
    EXPECT_EQ(found.loss_scales[i + 1],
              found.skipped[i] ? found.loss_scales[i] / 2 : found.loss_scales[i]);
    EXPECT_EQ(std::isfinite(found.norms[i]), !found.skipped[i]);
    EXPECT_TRUE(std::isfinite(found.losses[i]));
  }
  EXPECT_LT(found.losses.back(), found.losses.front());
}

TEST_F(ScaledRuns, EndWhereNoScaleIsLeftToTry) {
  job_.compute = DType::kF16;
  job_.train.max_skips = 2;
  for (const LossScaleOptions& options :
       {LossScaleOptions{.fixed = kMostLossScale},
        LossScaleOptions{.fixed = std::nullopt, .initial_power = 32, .least = kMostLossScale}}) {
    job_.loss_scale = options;
    try {
      run(job_);
      ADD_FAILURE() << "the run went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::kNonFinite);
      EXPECT_THAT(e.what(), HasSubstr("2 skipped steps in a row"));
      EXPECT_THAT(e.what(), HasSubstr("loss scale 4294967296"));
    }
  }
}

}  // namespace
}  // namespace sluice::train
