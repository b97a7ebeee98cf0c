#include "engine/train/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "engine/plan/rates.h"
#include "gpu/device.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using schedule::OpId;

plan::Rates rates_of(schedule::Options homes, const std::string& nvme_folder,
                     schedule::Sharing sharing = schedule::Sharing::kSeparate) {
  schedule::Setup setup;
  setup.homes = homes;
  setup.sharing = sharing;
  const Numerics numerics{.threads = 1, .loss_chunk = 1};
  memory::NvmeTier nvme;
  nvme.paths = {nvme_folder};
  const cpu_adam::Options adam{.threads = 1, .stores = cpu_adam::Stores::kCached};
  return calibrate(setup, numerics, {{OpId::kLayerForward, 0.25}}, adam, nvme, {});
}

TEST(Calibrate, FindsARateForEverythingThatMovesOrComputes) {
  const TempFolder folder;
  const plan::Rates rates =
      rates_of({.offload_optimizer = schedule::OptimizerHome::kNvme}, folder / "");
  for (const double rate :
       {rates.copy, rates.adam, rates.sums, rates.nvme_read.alone, rates.nvme_write.alone}) {
    EXPECT_GT(rate, 1e6) << "slower than any machine that could run this";
    EXPECT_LT(rate, 1e13);
  }
  EXPECT_EQ(rates.compute.at(OpId::kLayerForward).latency_s, 0.25);
  const plan::Rates unmeasured;
  EXPECT_NE(rates.copy, unmeasured.copy);
  EXPECT_NE(rates.adam, unmeasured.adam);
  EXPECT_NE(rates.sums, unmeasured.sums);
  for (const auto& drive : {rates.nvme_read, rates.nvme_write}) {
    if (drive.alone < 50e6) continue;  // too slow to be asked for several
    EXPECT_GT(drive.together, 1e6);
    EXPECT_LT(drive.together, 1e13);
  }
  const double core = 1.0 / std::thread::hardware_concurrency();
  EXPECT_DOUBLE_EQ(rates.cpu_cores, core);  // one thread, as everything here
  EXPECT_DOUBLE_EQ(rates.compute_cores, gpu::device().unified ? core : 0);
  EXPECT_DOUBLE_EQ(rates.copy_cores, gpu::device().unified ? core : 0);
}

TEST(Calibrate, CopiesNothingWhereTheTiersShareMemory) {
  EXPECT_EQ(rates_of({}, "/", schedule::Sharing::kUnified).copy, plan::Rates{}.copy);
}

TEST(Calibrate, LooksAtTheDrivesForWhateverLivesThere) {
  const TempFolder folder;
  for (const schedule::Options& homes :
       {schedule::Options{.offload_param = schedule::ParamHome::kNvme},
        schedule::Options{.offload_optimizer = schedule::OptimizerHome::kNvme},
        schedule::Options{.offload_activation = schedule::ActivationHome::kNvme}}) {
    EXPECT_GT(rates_of(homes, folder / "").nvme_read.alone, 0);
  }
}

TEST(Calibrate, LeavesNothingBehindInAFolderThatExistsAndMakesNoneThatDoesNot) {
  const TempFolder folder;
  const auto in_use = schedule::Options{.offload_param = schedule::ParamHome::kNvme};
  rates_of(in_use, folder / "");
  rates_of(in_use, folder / "not/yet/there");
  EXPECT_TRUE(fs::is_empty(folder / ""));
}

TEST(Calibrate, LeavesTheDrivesAloneWhenNothingLivesThere) {
  const plan::Rates rates = rates_of({}, "/proc/nothing/can/be/written/here");
  EXPECT_EQ(rates.nvme_read.alone, 0);
}

TEST(Calibrate, GuessesOfADriveThatCannotBeWritten) {
  ::testing::internal::CaptureStderr();
  const plan::Rates rates =
      rates_of({.offload_optimizer = schedule::OptimizerHome::kNvme}, "/proc/self/nothing");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("the drives were not measured"));
  EXPECT_GT(rates.nvme_read.alone, 0);
  EXPECT_GT(rates.nvme_write.alone, 0);
}

}  // namespace
}  // namespace sluice::train
