#include "engine/train/loss_scale.h"

#include <gtest/gtest.h>

namespace sluice::train {
namespace {

constexpr LossScaleOptions kTried{
    .fixed = std::nullopt, .initial_power = 4, .window = 3, .least = 4};

Control beginning(const LossScaleOptions& options) {
  return {.loss_scale = first_loss_scale(options, 0)};
}

TEST(LossScale, BeginsAsAskedOrAsItWasSaved) {
  EXPECT_EQ(first_loss_scale(kTried, 0), 16);
  EXPECT_EQ(first_loss_scale(kTried, 128), 128);
  EXPECT_EQ(first_loss_scale(kTried, 2), 4);
  EXPECT_EQ(first_loss_scale({.fixed = 32}, 128), 32);
  EXPECT_EQ(first_loss_scale({}, 0), 1);
}

TEST(LossScale, DoublesAfterAWindowOfUpdates) {
  Control control = beginning(kTried);
  for (const std::int64_t expected : {16, 16, 32, 32, 32, 64}) {
    scale_held(kTried, control);
    EXPECT_EQ(control.loss_scale, expected);
  }
}

TEST(LossScale, HalvesAtAnOverflowAndBeginsItsWindowAgain) {
  Control control = beginning(kTried);
  scale_held(kTried, control);
  scale_held(kTried, control);
  EXPECT_TRUE(lower_scale(kTried, control));
  EXPECT_EQ(control.loss_scale, 8);
  for (const std::int64_t expected : {8, 8, 16}) {
    scale_held(kTried, control);
    EXPECT_EQ(control.loss_scale, expected);
  }
}

TEST(LossScale, GoesNoLowerThanAllowed) {
  Control control = beginning(kTried);
  EXPECT_TRUE(lower_scale(kTried, control));
  EXPECT_TRUE(lower_scale(kTried, control));
  EXPECT_EQ(control.loss_scale, 4);
  EXPECT_FALSE(lower_scale(kTried, control));
  EXPECT_EQ(control.loss_scale, 4);
}

TEST(LossScale, GoesNoHigherThanItsMost) {
  Control control{.loss_scale = kMostLossScale};
  for (int i = 0; i < 10; ++i) scale_held(kTried, control);
  EXPECT_EQ(control.loss_scale, kMostLossScale);
}

TEST(LossScale, StaysWhereItIsFixed) {
  const LossScaleOptions fixed{.fixed = 16, .window = 1};
  Control control = beginning(fixed);
  scale_held(fixed, control);
  EXPECT_FALSE(lower_scale(fixed, control));
  EXPECT_EQ(control.loss_scale, 16);
}

}  // namespace
}  // namespace sluice::train
