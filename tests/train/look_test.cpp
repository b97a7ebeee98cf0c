#include "engine/train/look.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace sluice::train {
namespace {

TEST(Look, NotesALayerWhoseRoundsBesideAnUpdateDisagree) {
  Look look({}, 16_MiB);
  int ms = 0;
  const auto layer = [&] { std::this_thread::sleep_for(std::chrono::milliseconds(ms += 10)); };
  const auto update = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  look.paces(layer, 0.01, update, 0.01);
  ASSERT_EQ(look.unsteady().size(), 1U);
  EXPECT_EQ(look.unsteady().front().what, "a layer beside adam");
  EXPECT_GT(look.unsteady().front().spread, kMostSpread);
}

TEST(Look, CopiesNoMoreThanItUpdates) {
  const Look look({}, 16_MiB);
  EXPECT_EQ(look.elems() * sizeof(float), 4_MiB);
  EXPECT_EQ(4 * look.copied(), 20_MiB) << "five arrays: state, a gradient and weights";
}

}  // namespace
}  // namespace sluice::train
