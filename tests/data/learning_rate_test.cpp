#include "engine/data/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/errors.h"

namespace sluice::data {
namespace {

using test::expect_error;

SchedulerOptions options(SchedulerType type, std::variant<std::int64_t, double> warmup,
                         double min_lr_ratio) {
  return {type, warmup, min_lr_ratio};
}
constexpr std::int64_t kNoWarmup = 0;

TEST(LearningRate, WarmUpIsLinearFromOneShareToAllOfBase) {
  for (const auto type : {SchedulerType::kConstant, SchedulerType::kLinear, SchedulerType::kCosine,
                          SchedulerType::kWsd}) {
    const auto o = options(type, std::int64_t{4}, 0.1);
    EXPECT_DOUBLE_EQ(lr_at(o, 8.0, 0, 100), 2.0);
    EXPECT_DOUBLE_EQ(lr_at(o, 8.0, 1, 100), 4.0);
    EXPECT_DOUBLE_EQ(lr_at(o, 8.0, 2, 100), 6.0);
    EXPECT_EQ(lr_at(o, 8.0, 3, 100), 8.0);
    EXPECT_EQ(lr_at(o, 8.0, 4, 100), 8.0);
  }
}

TEST(LearningRate, ConstantStaysAtBase) {
  const auto o = options(SchedulerType::kConstant, kNoWarmup, 0.3);
  for (const std::int64_t step : {0, 1, 99, 100, 1000}) EXPECT_EQ(lr_at(o, 3e-4, step, 100), 3e-4);
}

TEST(LearningRate, LinearIsAStraightLineToTheFloor) {
  const auto o = options(SchedulerType::kLinear, std::int64_t{20}, 0.1);
  EXPECT_EQ(lr_at(o, 1.0, 20, 100), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(o, 1.0, 60, 100), 0.55);
  EXPECT_DOUBLE_EQ(lr_at(o, 1.0, 99, 100), 0.1 + 0.9 / 80);
  EXPECT_EQ(lr_at(o, 1.0, 100, 100), 0.1);
}

TEST(LearningRate, CosineIsHalfAWaveToTheFloor) {
  const auto o = options(SchedulerType::kCosine, std::int64_t{20}, 0.1);
  EXPECT_EQ(lr_at(o, 1.0, 20, 100), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(o, 1.0, 40, 100), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(lr_at(o, 1.0, 60, 100), 0.55);
  EXPECT_EQ(lr_at(o, 1.0, 100, 100), 0.1);
}

TEST(LearningRate, WsdDecaysOverTheLastFifth) {
  const auto o = options(SchedulerType::kWsd, std::int64_t{10}, 0.2);
  EXPECT_EQ(lr_at(o, 1.0, 10, 100), 1.0);
  EXPECT_EQ(lr_at(o, 1.0, 80, 100), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(o, 1.0, 81, 100), 1.0 - 0.8 / 20);
  EXPECT_DOUBLE_EQ(lr_at(o, 1.0, 90, 100), 0.6);
  EXPECT_EQ(lr_at(o, 1.0, 100, 100), 0.2);
}

TEST(LearningRate, WsdNeverDecaysBeforeWarmUpEnds) {
  const auto o = options(SchedulerType::kWsd, std::int64_t{90}, 0.0);
  EXPECT_EQ(lr_at(o, 1.0, 89, 100), 1.0);
  EXPECT_EQ(lr_at(o, 1.0, 90, 100), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(o, 1.0, 95, 100), 0.5);
}

TEST(LearningRate, NeverRisesAfterWarmUpAndStaysAtTheFloorAfterTheEnd) {
  for (const auto type : {SchedulerType::kLinear, SchedulerType::kCosine, SchedulerType::kWsd}) {
    const auto o = options(type, 0.05, 0.1);
    for (std::int64_t step = 49; step < 1000; ++step) {
      EXPECT_LE(lr_at(o, 1.0, step + 1, 1000), lr_at(o, 1.0, step, 1000)) << step;
    }
    EXPECT_EQ(lr_at(o, 1.0, 5000, 1000), 0.1);
  }
}

TEST(LearningRate, FractionOfWarmUpIsRoundedToTheNearestStep) {
  EXPECT_EQ(warmup_steps(options(SchedulerType::kCosine, 0.03, 0.1), 1000), 30);
  EXPECT_EQ(warmup_steps(options(SchedulerType::kCosine, 0.03, 0.1), 10), 0);
  EXPECT_EQ(warmup_steps(options(SchedulerType::kCosine, 0.07, 0.1), 100), 7);
  EXPECT_EQ(warmup_steps(options(SchedulerType::kCosine, 1.0, 0.1), 7), 7);
  EXPECT_EQ(warmup_steps(options(SchedulerType::kCosine, std::int64_t{2000}, 0.1), 10), 2000);
}

TEST(LearningRate, EdgesOfWarmUp) {
  EXPECT_EQ(lr_at(options(SchedulerType::kLinear, kNoWarmup, 0.0), 1.0, 0, 10), 1.0);
  EXPECT_EQ(lr_at(options(SchedulerType::kLinear, std::int64_t{1}, 0.0), 1.0, 0, 10), 1.0);
  const auto all = options(SchedulerType::kCosine, 1.0, 0.1);
  EXPECT_EQ(lr_at(all, 1.0, 9, 10), 1.0);
  const auto longer = options(SchedulerType::kCosine, std::int64_t{20}, 0.1);
  EXPECT_DOUBLE_EQ(lr_at(longer, 1.0, 9, 10), 0.5);
}

TEST(LearningRate, OneStepRunsAtBase) {
  for (const auto type : {SchedulerType::kConstant, SchedulerType::kLinear, SchedulerType::kCosine,
                          SchedulerType::kWsd}) {
    EXPECT_EQ(lr_at(options(type, 0.03, 0.0), 2.0, 0, 1), 2.0);
  }
}

TEST(LearningRate, EverySteppedRateIsFiniteWithoutSteps) {
  EXPECT_EQ(lr_at(options(SchedulerType::kCosine, 0.03, 0.1), 1.0, 0, 0), 0.1);
}

TEST(LearningRate, NonsenseIsRefused) {
  const auto refuses = [](const SchedulerOptions& o, const std::string& key) {
    expect_error(Errc::kConfig, {key}, [&] { lr_at(o, 1.0, 0, 10); });
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  refuses(options(SchedulerType::kCosine, std::int64_t{-1}, 0.1), "scheduler.warmup_steps");
  refuses(options(SchedulerType::kCosine, 1.5, 0.1), "scheduler.warmup_steps");
  refuses(options(SchedulerType::kCosine, kNan, 0.1), "scheduler.warmup_steps");
  refuses(options(SchedulerType::kCosine, 0.1, -0.1), "scheduler.min_lr_ratio");
  refuses(options(SchedulerType::kCosine, 0.1, 1.1), "scheduler.min_lr_ratio");
  refuses(options(SchedulerType::kCosine, 0.1, kNan), "scheduler.min_lr_ratio");
  expect_error(Errc::kLogic, {"step -1"},
               [] { lr_at(options(SchedulerType::kCosine, 0.1, 0.1), 1.0, -1, 10); });
}

}  // namespace
}  // namespace sluice::data
