/// Segments that are clipped one by one, at the end of a step or as their gradients arrive, against
/// the same numbers worked out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/train/tiny_run.h"
#include "tests/train/witness.h"

namespace sluice::train {
namespace {

using schedule::Update;

class BySegment : public testing::TestWithParam<Update> {
 protected:
  BySegment() : job_(tiny_job(folder_, tiny_llama())) {
    job_.train.gradient_accumulation_steps = 3;
    job_.train.train_batch_size = 6;
    job_.train.gradient_clipping = 0.6;
    job_.train.clip_scope = ClipScope::kSegment;
    job_.train.on_nonfinite = OnNonFinite::kStop;
    job_.optimizer.update = GetParam();
    job_.hooks.wrap_handler = [this](executor::Handler& inner, const memory::SlotMemory& memory) {
      return std::make_unique<Witness>(inner, memory, seen_);
    };
  }

  /// Segments that were updated in a step, with the sums of squares of their gradients.
  std::map<std::int32_t, double> squares(std::int64_t step) const {
    std::map<std::int32_t, double> sums;
    for (const auto& [id, update] : seen_.updates) {
      if (std::get<0>(id) != step) continue;
      for (const float g : update.gradient) sums[std::get<1>(id)] += double{g} * double{g};
    }
    return sums;
  }

  const TempFolder folder_;
  Job job_;
  Sightings seen_;
};

INSTANTIATE_TEST_SUITE_P(Updates, BySegment, testing::Values(Update::kEnd, Update::kArriving),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(BySegment, EachIsClippedByItsOwnNorm) {
  const Observed run = observe(job_);
  EXPECT_EQ(run.plan.setup.update, GetParam());
  ASSERT_EQ(run.records.size(), static_cast<std::size_t>(kTinySteps));
  // As in numbers_test: sums of n squares are off by less than n 2^-53 of themselves, their roots
  // by half of that; a factor is rounded to float once.
  const double close = static_cast<double>(run.plan.setup.model->parameters()) * 0x1p-53;
  int clipped = 0, whole = 0;
  for (std::int64_t step = 0; step < kTinySteps; ++step) {
    const data::StepRecord& record = run.records[static_cast<std::size_t>(step)];
    double all = 0, largest = 0, smallest_clip = 1;
    std::map<std::int32_t, double> clips;
    for (const auto& [segment, sum] : squares(step)) {
      const double norm = std::sqrt(sum);
      clips[segment] = std::min(1.0, 0.6 / (norm + 1e-6));
      all += sum;
      largest = std::max(largest, norm);
      smallest_clip = std::min(smallest_clip, clips[segment]);
      ++(clips[segment] < 1 ? clipped : whole);
    }
    EXPECT_EQ(clips.size(), run.plan.setup.model->segments.size());
    EXPECT_NEAR(record.gnorm, std::sqrt(all), std::sqrt(all) * close);
    ASSERT_TRUE(record.largest_gnorm);
    EXPECT_NEAR(*record.largest_gnorm, largest, largest * close);
    EXPECT_NEAR(record.clip, smallest_clip, close);
    for (const auto& [id, update] : seen_.updates) {
      const auto& [of_step, segment, chunk] = id;
      if (of_step != step) continue;
      EXPECT_NEAR(update.record.clip, clips[segment], close + 0x1p-24) << segment;
      EXPECT_EQ(update.record.t, step + 1);
      EXPECT_EQ(update.record.lr, static_cast<float>(record.lr));
      EXPECT_EQ(update.record.bias_correction1,
                cpu_adam::bias_correction(0.9F, static_cast<std::uint64_t>(step + 1)));
    }
  }
  EXPECT_GT(clipped, 0);
  EXPECT_GT(whole, 0);
}

TEST(BySegmentAtTheEnd, AStepIsSkippedAsAWhole) {
  const TempFolder folder;
  Sightings seen;
  Job job = tiny_job(folder, tiny_llama());
  job.train.clip_scope = ClipScope::kSegment;
  job.hooks.wrap_handler = [&](executor::Handler& inner, const memory::SlotMemory& memory) {
    return std::make_unique<Witness>(inner, memory, seen);
  };
  const Observed run = observe(job, {.spoiled_steps = {2}});
  EXPECT_EQ(run.plan.setup.update, Update::kEnd);
  for (std::int64_t step = 0; step < kTinySteps; ++step) {
    EXPECT_EQ(run.records[static_cast<std::size_t>(step)].skipped, step == 2);
    for (const auto& [id, update] : seen.updates) {
      if (std::get<0>(id) != step) continue;
      EXPECT_EQ(update.before != update.after, step != 2);
    }
  }
}

class Arriving : public BySegment {};
INSTANTIATE_TEST_SUITE_P(Updates, Arriving, testing::Values(Update::kArriving));

/// The spoiled gradient is a layer's: the head is updated by then, that layer and those before it
/// are not.
TEST_P(Arriving, AGradientThatIsNotFiniteEndsTheRunBeforeItsSegmentIsTouched) {
  test::expect_error(
      Errc::kNonFinite,
      {"step 3: the gradient of model.layers.2.", "is not finite", "the last checkpoint"},
      [&] { observe(job_, {.spoiled_steps = {2}}); });
  std::vector<std::int32_t> updated;
  for (const auto& [segment, sum] : squares(2)) {
    updated.push_back(segment);
    EXPECT_TRUE(std::isfinite(sum)) << segment;
  }
  EXPECT_THAT(updated, testing::ElementsAre(4, 5, 6));  // behind layer 2, which is segment 3
}

TEST_P(Arriving, ALossThatIsNotFiniteEndsTheRunBeforeAnyUpdate) {
  seen_.spoiled_step = 2;
  test::expect_error(Errc::kNonFinite, {"step 3: loss inf", "train.on_nonfinite is stop"},
                     [&] { observe(job_); });
  EXPECT_FALSE(squares(1).empty());
  EXPECT_TRUE(squares(2).empty());
}

TEST_P(Arriving, WithoutClippingHasTheBitsOfTheEnd) {
  job_.train.gradient_clipping = std::nullopt;
  const Fingerprint arriving = run(job_);
  job_.optimizer.update = Update::kEnd;
  EXPECT_EQ(arriving, run(job_));
  EXPECT_TRUE(arriving.largest_norms.empty());
}

TEST_P(Arriving, IsRefusedWhereAllGradientsAreNeeded) {
  job_.train.clip_scope = ClipScope::kGlobal;
  test::expect_error(Errc::kConfig, {"optimizer.update is arriving", "clipping by one norm"},
                     [&] { make_session(job_); });
}

/// A norm that is no number is the largest, wherever it stands.
TEST(BySegmentAtTheEnd, TellsANormThatIsNotFinite) {
  const TempFolder folder;
  Job job = tiny_job(folder, tiny_llama());
  job.train.clip_scope = ClipScope::kSegment;
  for (const float by : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const Observed run = observe(job, {.spoiled_steps = {2}, .spoiled_by = by});
    EXPECT_FALSE(std::isfinite(*run.records[2].largest_gnorm)) << by;
    EXPECT_TRUE(std::isfinite(*run.records[1].largest_gnorm));
  }
}

/// Less host memory than the gradients of the whole model take.
TEST(Auto, ArrivesWhereTheRunAllowsItAndWaitingDoesNotFit) {
  const TempFolder folder;
  Job job = tiny_job(folder, tiny_llama());
  job.optimizer.update = Update::kEnd;
  job.tiers.cpu.limit = make_session(job).plan().minimum[index(prefetch::Tier::kCpu)] - 1;
  const auto picked = [&] { return make_session(job).plan().setup.update; };
  const auto expect_refused = [&] {
    test::expect_error(Errc::kBudget, {"the cpu tier is too small"}, [&] { picked(); });
  };
  expect_refused();
  job.optimizer.update = std::nullopt;
  expect_refused();  // one norm of all
  job.train.gradient_clipping = std::nullopt;
  expect_refused();  // a skipped step leaves everything
  job.train.on_nonfinite = OnNonFinite::kStop;
  EXPECT_EQ(picked(), Update::kArriving);
  job.train.gradient_clipping = 1;
  job.train.clip_scope = ClipScope::kSegment;
  EXPECT_EQ(picked(), Update::kArriving);
  job.loss_scale = {.fixed = std::nullopt};
  expect_refused();  // steps that overflow are skipped
}

}  // namespace
}  // namespace sluice::train
