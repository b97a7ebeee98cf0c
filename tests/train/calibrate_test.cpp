#include "engine/train/calibrate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/plan/rates.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using schedule::OpId;

plan::Rates rates_of(schedule::Options homes, const std::string& nvme_folder) {
  schedule::Setup setup;
  setup.homes = homes;
  const Numbers numbers{.threads = 1, .loss_chunk = 1};
  memory::NvmeTier nvme;
  nvme.paths = {nvme_folder};
  const cpu_adam::Options adam{.threads = 1, .stores = cpu_adam::Stores::kCached};
  return calibrate(setup, numbers, {{OpId::kLayerForward, 0.25}}, adam, nvme, {});
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
  EXPECT_GT(rates.cpu_cores, 0);
  EXPECT_LE(rates.cpu_cores, 1);
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
  const plan::Rates rates =
      rates_of({.offload_optimizer = schedule::OptimizerHome::kNvme}, "/proc/self/nothing");
  EXPECT_GT(rates.nvme_read.alone, 0);
  EXPECT_GT(rates.nvme_write.alone, 0);
}

}  // namespace
}  // namespace sluice::train
