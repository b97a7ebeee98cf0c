#include "engine/train/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "engine/base/clock.h"
#include "engine/plan/rates.h"
#include "gpu/device.h"
#include "nvme/speed.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using schedule::OpId;

Calibration look_at_all(schedule::Options homes, const std::string& nvme_folder,
                        schedule::Sharing sharing) {
  schedule::Setup setup;
  setup.homes = homes;
  setup.sharing = sharing;
  const Numerics numerics{.threads = 1, .loss_chunk = 1};
  memory::NvmeTier nvme;
  nvme.paths = {nvme_folder};
  const cpu_adam::Options adam{.threads = 1, .stores = cpu_adam::Stores::kCached};
  return calibrate(setup, numerics, {{OpId::kLayerForward, 0.25}}, adam, nvme, {});
}

plan::Rates look(schedule::Options homes, const std::string& nvme_folder,
                 schedule::Sharing sharing = schedule::Sharing::kSeparate) {
  return look_at_all(homes, nvme_folder, sharing).rates;
}

/// An update reads and writes master, m and v, and reads a gradient, all of 4 bytes; a sum is read
/// and written. Over 2^20 elements each.
TEST(Calibrate, MakesRatesOfWhatTheLookTook) {
  constexpr double kMiB = 1 << 20;
  const Timings timings{
      .copy = 4, .host = {7, 2}, .drives = nvme::Speed{{1e9, 2e9}, {3e9, 0}, 1.5}};
  const plan::Rates rates = rates_of(timings, false);
  EXPECT_DOUBLE_EQ(rates.copy, 16 * kMiB / 4);
  EXPECT_DOUBLE_EQ(rates.adam, (3 + 3 + 1) * 4 * kMiB / 7);
  EXPECT_DOUBLE_EQ(rates.sums, (1 + 1) * 4 * kMiB / 2);
  EXPECT_EQ(rates.nvme_read.alone, 1e9);
  EXPECT_EQ(rates.nvme_read.together, 2e9);
  EXPECT_EQ(rates.nvme_write.alone, 3e9);
  EXPECT_EQ(rates.nvme_write.together, 0) << "it was not asked";
  EXPECT_EQ(rates.nvme_overlap, 1.5);

  EXPECT_EQ(rates.first_values, rates.adam);
  EXPECT_EQ(rates.device_sums, rates.sums);

  const Timings both{.host = {7, 2}, .device = ArithmeticTimings{14, 8}};
  EXPECT_DOUBLE_EQ(rates_of(both, true).adam, rates.adam / 2);
  EXPECT_EQ(rates_of(both, true).updates, schedule::LaneKind::kCompute);
  EXPECT_EQ(rates_of(both, false).updates, schedule::LaneKind::kCpu);
  EXPECT_DOUBLE_EQ(rates_of(both, true).first_values, rates.adam);
  EXPECT_DOUBLE_EQ(rates_of(both, false).adam, rates.adam);
  EXPECT_DOUBLE_EQ(rates_of(both, false).sums, rates.sums);
  EXPECT_DOUBLE_EQ(rates_of(both, false).device_sums, rates.sums / 4);

  const plan::Rates host = rates_of(Timings{.host = {1, 1}}, false);
  EXPECT_EQ(host.copy, plan::Rates{}.copy);
  EXPECT_EQ(host.nvme_read.alone, 0);
  EXPECT_EQ(host.nvme_write.alone, 0);
}

TEST(Calibrate, TimesEverythingThatMovesOrComputesAndNothingLongerThanTheLook) {
  const TempFolder folder;
  const Nanos begin = now_ns();
  const plan::Rates rates =
      look({.offload_optimizer = schedule::OptimizerHome::kNvme}, folder / "");
  const double look_s = to_seconds(now_ns() - begin);
  const auto timed = [&](double bytes, double rate) {
    EXPECT_GT(rate, 0);
    EXPECT_LE(bytes / rate, look_s);
  };
  timed(kCopied, rates.copy);
  timed(28.0 * kUpdated, rates.adam);
  timed(8.0 * kUpdated, rates.sums);
  for (const auto& drive : {rates.nvme_read, rates.nvme_write}) {
    timed(nvme::kLookedAt, drive.alone);
    if (drive.together > 0) timed(4.0 * nvme::kLookedAt, drive.together);
  }
  EXPECT_EQ(rates.compute.at(OpId::kLayerForward).latency_s, 0.25);
  const plan::Rates unmeasured;
  EXPECT_NE(rates.copy, unmeasured.copy);
  EXPECT_NE(rates.adam, unmeasured.adam);
  EXPECT_NE(rates.sums, unmeasured.sums);
  const double core = 1.0 / std::thread::hardware_concurrency();
  EXPECT_DOUBLE_EQ(rates.cpu_cores, core);  // one thread, as everything here
  EXPECT_DOUBLE_EQ(rates.compute_cores, gpu::device().unified ? core : 0);
  EXPECT_DOUBLE_EQ(rates.copy_cores, gpu::device().unified ? core : 0);
}

TEST(Calibrate, CopiesNothingWhereTheTiersShareMemory) {
  EXPECT_EQ(look({}, "/", schedule::Sharing::kUnified).copy, plan::Rates{}.copy);
}

TEST(Calibrate, LooksAtTheDrivesForWhateverLivesThere) {
  const TempFolder folder;
  for (const schedule::Options& homes :
       {schedule::Options{.offload_param = schedule::ParamHome::kNvme},
        schedule::Options{.offload_optimizer = schedule::OptimizerHome::kNvme},
        schedule::Options{.offload_activation = schedule::ActivationHome::kNvme}}) {
    const Calibration found = look_at_all(homes, folder / "", schedule::Sharing::kSeparate);
    EXPECT_GT(found.rates.nvme_read.alone, 0);
    ASSERT_EQ(found.speeds.size(), 1U);
    EXPECT_GT(found.speeds[0], 0);
  }
}

TEST(Calibrate, LeavesNothingBehindInAFolderThatExistsAndMakesNoneThatDoesNot) {
  const TempFolder folder;
  const auto in_use = schedule::Options{.offload_param = schedule::ParamHome::kNvme};
  look(in_use, folder / "");
  look(in_use, folder / "not/yet/there");
  EXPECT_TRUE(fs::is_empty(folder / ""));
}

TEST(Calibrate, LeavesTheDrivesAloneWhenNothingLivesThere) {
  const plan::Rates rates = look({}, "/proc/nothing/can/be/written/here");
  EXPECT_EQ(rates.nvme_read.alone, 0);
}

TEST(Calibrate, GuessesOfADriveThatCannotBeWritten) {
  ::testing::internal::CaptureStderr();
  const plan::Rates rates =
      look({.offload_optimizer = schedule::OptimizerHome::kNvme}, "/proc/self/nothing");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("the drives were not measured"));
  for (const auto& drive : {rates.nvme_read, rates.nvme_write}) {
    EXPECT_GT(drive.alone, 0);
    EXPECT_GT(drive.together, drive.alone) << "a drive gains from several transfers at a time";
  }
}

}  // namespace
}  // namespace sluice::train
