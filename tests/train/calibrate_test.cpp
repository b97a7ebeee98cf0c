#include "engine/train/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/cores.h"
#include "engine/plan/rates.h"
#include "gpu/device.h"
#include "nvme/speed.h"
#include "prefetch/simulate.h"
#include "tests/support/extent.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using schedule::OpId;

/// Has one op, and counts how often it is run.
class Layer : public Compute {
 public:
  int times = 0;

  Measured measure(gpu::Stream&, Bytes, Wanted) override { return {}; }
  std::function<void()> example(gpu::Stream&) override {
    return [this] { ++times; };
  }
  void set_workspace(std::span<std::byte>, Bytes) override {}
  void run(const OpBytes&) override {}
  WorkspaceUse peak() const override { return {}; }
};

Calibration look_at_all(schedule::Options homes, const std::vector<std::string>& nvme_folders,
                        schedule::Sharing sharing) {
  schedule::Setup setup;
  setup.homes = homes;
  setup.sharing = sharing;
  const Numerics numerics{.threads = 1, .loss_chunk = 1};
  memory::NvmeTier nvme;
  nvme.paths = nvme_folders;
  const cpu_adam::Options adam{.threads = 1, .stores = cpu_adam::Stores::kCached};
  const Measured ops{.workspace = {},
                     .seconds = {{OpId::kLayerForward, 0.25}},
                     .bytes = {{OpId::kLayerForward, 1000}},
                     .unsteady = {}};
  Layer layer;
  gpu::Stream stream("test");
  return calibrate(setup, numerics, 1_GiB, ops, layer, stream, adam, nvme, {});
}

plan::Rates look(schedule::Options homes, const std::string& nvme_folder,
                 schedule::Sharing sharing = schedule::Sharing::kSeparate) {
  return look_at_all(homes, {nvme_folder}, sharing).rates;
}

/// An update reads and writes master, m and v, and reads a gradient, all of 4 bytes; a sum is read
/// and written. Over 2^20 elements each.
TEST(Calibrate, MakesRatesOfWhatTheLookTook) {
  constexpr double kMiB = 1 << 20;
  const Timings timings{.copied = 16_MiB,
                        .copies = CopyTimings{3, 5, 6},
                        .check = 8,
                        .elems = 1 << 20,
                        .host = ArithmeticTimings{7, 2, 0.5},
                        .touched = 30_MiB,
                        .touch = 2,
                        .drives = nvme::Speed{{1e9, 2e9}, {3e9, 0}, 1.5},
                        .gradient = DType::kBf16};
  const plan::Rates rates = rates_of(timings, {});
  EXPECT_DOUBLE_EQ(rates.copy, 16 * kMiB / 4) << "the mean of both ways";
  EXPECT_DOUBLE_EQ(rates.copy_overlap, 8.0 / 6);
  EXPECT_DOUBLE_EQ(rates.checks, 16 * kMiB / 8);
  EXPECT_DOUBLE_EQ(rates.adam, (3 + 3 + 1) * 4 * kMiB / 7);
  EXPECT_DOUBLE_EQ(rates.sums, (1 + 1) * 4 * kMiB / 2);
  EXPECT_DOUBLE_EQ(rates.norms, 2 * kMiB / 0.5) << "a gradient of 2 bytes is read once";
  EXPECT_DOUBLE_EQ(rates.dram, 2 * 30 * kMiB / 2) << "read and written";
  EXPECT_EQ(rates.nvme_read.alone, 1e9);
  EXPECT_EQ(rates.nvme_read.together, 2e9);
  EXPECT_EQ(rates.nvme_write.alone, 3e9);
  EXPECT_EQ(rates.nvme_write.together, 0) << "it was not asked";
  EXPECT_EQ(rates.nvme_overlap, 1.5);

  EXPECT_EQ(rates.first_values, rates.adam);
  EXPECT_EQ(rates.device_sums, rates.sums);

  const Timings both{
      .elems = 1 << 20, .host = ArithmeticTimings{7, 2, 1}, .device = ArithmeticTimings{14, 8, 4}};
  const OnDevice updates{.updates = true}, gradients{.gradients = true};
  EXPECT_DOUBLE_EQ(rates_of(both, updates).adam, rates.adam / 2);
  EXPECT_EQ(rates_of(both, updates).updates, schedule::LaneKind::kCompute);
  EXPECT_EQ(rates_of(both, gradients).updates, schedule::LaneKind::kCpu);
  EXPECT_DOUBLE_EQ(rates_of(both, updates).first_values, rates.adam);
  EXPECT_DOUBLE_EQ(rates_of(both, gradients).adam, rates.adam);
  EXPECT_DOUBLE_EQ(rates_of(both, {}).sums, rates.sums);
  EXPECT_DOUBLE_EQ(rates_of(both, {}).device_sums, rates.sums / 4);
  EXPECT_DOUBLE_EQ(rates_of(both, updates).norms, 4 * kMiB);
  EXPECT_DOUBLE_EQ(rates_of(both, gradients).norms, 4 * kMiB / 4);
  EXPECT_EQ(rates_of(both, updates).gradients, schedule::LaneKind::kCpu);
  EXPECT_EQ(rates_of(both, gradients).gradients, schedule::LaneKind::kCompute);

  Timings faster = timings;
  faster.copies = CopyTimings{1, 1, 1};
  EXPECT_EQ(rates_of(faster, {}).copy_overlap, 2);
  EXPECT_DOUBLE_EQ(rates_of(faster, {}).dram, 32 * kMiB) << "copies moved more than cores";

  const Timings none_here{.elems = 1 << 20, .device = ArithmeticTimings{14, 8, 4}};
  EXPECT_DOUBLE_EQ(rates_of(none_here, {.updates = true, .gradients = true}).adam, rates.adam / 2);

  const plan::Rates host = rates_of(Timings{.elems = 1, .host = ArithmeticTimings{1, 1, 1}}, {});
  EXPECT_EQ(host.copy, plan::Rates{}.copy);
  EXPECT_EQ(host.copy_overlap, 2);
  EXPECT_EQ(host.checks, plan::Rates{}.checks);
  EXPECT_EQ(host.dram, 0);
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
  constexpr double kLeast = 1 << 20;  // each piece of work is longer
  timed(kLeast, rates.copy);
  timed(kLeast, rates.adam);
  timed(kLeast, rates.sums);
  timed(kLeast, rates.norms);
  timed(kLeast, rates.dram);
  timed(kLeast, rates.checks);
  for (const auto& drive : {rates.nvme_read, rates.nvme_write}) {
    timed(nvme::kLookedAt, drive.alone);
    if (drive.together > 0) timed(4.0 * nvme::kLookedAt, drive.together);
  }
  EXPECT_EQ(rates.compute.at(OpId::kLayerForward).latency_s, 0.25);
  if (gpu::device().unified) {
    EXPECT_DOUBLE_EQ(rates.traffic.at(OpId::kLayerForward), 1000 / 0.25);
  } else {
    EXPECT_TRUE(rates.traffic.empty()) << "the device has memory of its own";
  }
  const plan::Rates unmeasured;
  EXPECT_NE(rates.copy, unmeasured.copy);
  EXPECT_NE(rates.adam, unmeasured.adam);
  EXPECT_NE(rates.sums, unmeasured.sums);
  EXPECT_NE(rates.norms, unmeasured.norms);
  const double core = 1.0 / core_count();
  EXPECT_DOUBLE_EQ(rates.cpu_cores, core);  // one thread, as everything here
  EXPECT_DOUBLE_EQ(rates.compute_cores, gpu::device().unified ? core : 0);
  EXPECT_DOUBLE_EQ(rates.copy_cores, gpu::device().unified ? core : 0);
}

TEST(Calibrate, WorksOnMoreThanCachesHoldAndOnNoMoreThanAnEighthOfWhatThereIs) {
  const auto has = [](Bytes model) { return RunBytes{model, 16_GiB}; };
  EXPECT_EQ(looked_at(32_MiB, has(1_GiB), 24_GiB), 256_MiB);
  EXPECT_EQ(looked_at(0, has(1_GiB), 24_GiB), 256_MiB) << "not known";
  EXPECT_EQ(looked_at(1_GiB, has(4_GiB), 24_GiB), 2_GiB);
  EXPECT_EQ(looked_at(32_MiB, has(1_GiB), 400_MiB), 50_MiB);
  EXPECT_EQ(looked_at(32_MiB, has(100_MiB), 24_GiB), 100_MiB) << "the run has no more";
  EXPECT_EQ(looked_at(1_GiB, {4_GiB, 1000_MiB}, 24_GiB), 600_MiB) << "its tiers have no more";
  EXPECT_EQ(looked_at(32_MiB, has(1_MiB), 24_GiB), 4_MiB);
}

TEST(Calibrate, ClearsCachesOfWhatOthersLeaveThere) {
  EXPECT_EQ(cleared_by(32_MiB, 1_GiB, 24_GiB), 64_MiB);
  EXPECT_EQ(cleared_by(0, 1_GiB, 24_GiB), 64_MiB) << "not known";
  EXPECT_EQ(cleared_by(32_MiB, 10_MiB, 24_GiB), 10_MiB) << "all of the run stays in a cache";
  EXPECT_EQ(cleared_by(768_MiB, 8_GiB, 24_GiB), 1_GiB);
  EXPECT_EQ(cleared_by(768_MiB, 8_GiB, 2_GiB), 256_MiB) << "a small cgroup on a large machine";
}

TEST(Calibrate, CoresGiveToTwoWhatBothGotDoneOfThem) {
  const auto given = [](Paces paces, double first, double second) {
    return shared_cores(paces, first, second).value().given;
  };
  EXPECT_EQ(given({0.5, 0.5}, 1, 1), 1);
  EXPECT_EQ(given({0.5, 0.25}, 1, 1), 0.75);
  EXPECT_EQ(given({0.5, 0.5}, 1, 0.5), 0.75);
  EXPECT_EQ(given({1, 0.75}, 1, 1), 1) << "neither fills them; a third finds no more than there is";
  EXPECT_EQ(given({0.5, 0.5}, 0.5, 0.5), 1) << "room for both";
  EXPECT_EQ(shared_cores({0.9, 0.8}, 0.75, 0.25).value().second, 0.25);
  EXPECT_EQ(shared_cores({0.9, 0.8}, 0.75, 0.25).value().weight, 1);
  EXPECT_EQ(shared_cores({0.25, 0.125}, 1, 1), std::nullopt) << "a disturbance";
  EXPECT_EQ(shared_cores({4, 4}, 1, 1), std::nullopt) << "of what they did alone";
}

/// Their speeds in the simulated step, as long as each is beside the other.
TEST(Calibrate, TwoThatShareCoresAreSimulatedAtTheirPaces) {
  for (const Paces& paces : {Paces{0.5, 0.5}, {0.5, 0.25}, {0.4, 0.7}, {0.7, 0.4}, {0.45, 1}}) {
    const SharedCores shared = shared_cores(paces, 1, 1).value();
    auto residents = std::make_shared<prefetch::Residents>();
    residents->seal();
    auto program = std::make_shared<prefetch::Program>("both", residents);
    for (const prefetch::LaneId lane : {0U, 1U}) {
      prefetch::Op op;
      op.lane = lane;
      op.cost.bytes = 10 * (lane == 0 ? paces.first : paces.second);
      program->op(op);
    }
    program->seal();
    prefetch::CostModel cost;
    cost.resources = {{"cores", shared.given}};
    cost.lanes.resize(2);
    for (prefetch::LaneCost& lane : cost.lanes) lane.bytes_per_second = 1;
    cost.lanes[0].demands = {{0, 1}};
    cost.lanes[1].demands = {{0, shared.second}};
    cost.lanes[1].weight = shared.weight;
    const std::vector<std::shared_ptr<const prefetch::Program>> stream{program};
    const auto line = prefetch::simulate({residents, {}, prefetch::Lanes(2)}, stream, cost);
    for (const auto& span : line.spans) EXPECT_NEAR(span.end, 10, 1e-9) << paces.first;
  }
}

TEST(Calibrate, LooksAtALayerBesideTheUpdateWhereTheHostDoesBoth) {
  gpu::Stream stream("test");
  const auto times = [&](schedule::OptimizerHome home, double seconds) {
    schedule::Setup setup;
    setup.homes.offload_optimizer = home;
    Layer layer;
    Measured ops;
    if (seconds > 0) ops.seconds[OpId::kLayerBackward] = seconds;
    const cpu_adam::Options adam{.threads = 1, .stores = cpu_adam::Stores::kCached};
    calibrate(setup, {.threads = 1, .loss_chunk = 1}, 1_GiB, ops, layer, stream, adam, {}, {});
    return layer.times;
  };
  EXPECT_GT(times(schedule::OptimizerHome::kCpu, 0.1), 0);
  EXPECT_EQ(times(schedule::OptimizerHome::kCpu, 0), 0) << "nobody knows what it takes alone";
  EXPECT_EQ(times(schedule::OptimizerHome::kCpu, 2 * kLongestBeside), 0) << "too long";
  EXPECT_EQ(times(schedule::OptimizerHome::kNone, 0.1), 0) << "the device updates";
}

TEST(Calibrate, LooksAtDrivesBesideALayerWhereTheHostComputesIt) {
  const TempFolder folder;
  schedule::Setup setup;
  setup.homes.offload_param = schedule::ParamHome::kNvme;
  setup.homes.offload_optimizer = schedule::OptimizerHome::kNone;  // no update is beside it
  memory::NvmeTier nvme;
  nvme.paths = {folder / ""};
  Measured ops;
  ops.seconds[OpId::kLayerBackward] = 1e-3;
  Layer layer;
  gpu::Stream stream("test");
  calibrate(setup, {.threads = 1, .loss_chunk = 1}, 1_GiB, ops, layer, stream, {.threads = 1}, nvme,
            {});
  EXPECT_GT(layer.times, kRounds * kPairTimes) << "more than beside an update";
}

/// Works for twice as long beside the update as it is said to take alone.
class SlowLayer : public Layer {
 public:
  static constexpr double kAlone = 0.05;

  std::function<void()> example(gpu::Stream&) override {
    return [] { std::this_thread::sleep_for(std::chrono::duration<double>(2 * kAlone)); };
  }
};

TEST(Calibrate, TellsThePlanWhatItFound) {
  const int cores = static_cast<int>(core_count());
  Measured ops;
  ops.seconds[OpId::kLayerBackward] = SlowLayer::kAlone;
  const cpu_adam::Options adam{.threads = 1, .stores = cpu_adam::Stores::kCached};
  SlowLayer layer;
  gpu::Stream stream("test");
  const Calibration found =
      calibrate({}, {.threads = cores, .loss_chunk = 1}, 1_GiB, ops, layer, stream, adam, {}, {});
  const bool by_host = gpu::device().unified;  // else its cores compute nothing
  EXPECT_EQ(found.rates.shared_cores != plan::Rates{}.shared_cores, by_host);
  EXPECT_EQ(found.rates.cpu_weight != plan::Rates{}.cpu_weight, by_host);
  EXPECT_EQ(found.rates.copy_ends, by_host ? 2 : 1) << "host memory to host memory";
  EXPECT_DOUBLE_EQ(found.rates.check_cores, 1.0 / cores);
  EXPECT_EQ(found.stores, cpu_adam::Stores::kCached);
}

TEST(Calibrate, CarriesWhatWasUnsteady) {
  ::testing::internal::CaptureStderr();
  const Measured ops{.workspace = {}, .seconds = {}, .bytes = {}, .unsteady = {{"head", 0.5}}};
  const cpu_adam::Options adam{.threads = 1, .stores = cpu_adam::Stores::kCached};
  Layer layer;
  gpu::Stream stream("test");
  const Calibration found =
      calibrate({}, {.threads = 1, .loss_chunk = 1}, 1_GiB, ops, layer, stream, adam, {}, {});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("calibration: head varied by 50%"));
  ASSERT_FALSE(found.unsteady.empty());
  EXPECT_EQ(found.unsteady.front().what, "head");
}

TEST(Calibrate, KnowsWhatADriveWillHold) {
  schedule::Setup setup;
  setup.layouts.resize(2);
  setup.layouts[0].elems = 100;
  setup.layouts[1].elems = 1000;
  const auto on_nvme = [&setup](const schedule::Options& homes) {
    setup.homes = homes;
    return stored_of(setup);
  };
  setup.compute = DType::kBf16;
  EXPECT_EQ(on_nvme({}), 0U);
  EXPECT_EQ(on_nvme({.offload_param = schedule::ParamHome::kNvme}), 1100U * 2);
  EXPECT_EQ(on_nvme({.offload_optimizer = schedule::OptimizerHome::kNvme}), 1100U * 10);
  auto model = std::make_shared<shape::Model>();
  model->decoder.hidden = 64;
  model->blocks.resize(5);
  setup.model = model;
  setup.micro_batch_size = 3;
  setup.seq_len = 7;
  setup.sweep = 2;
  const Bytes input = round_up(Bytes{21 * 64 * 2}, kAlignment);
  EXPECT_EQ(on_nvme({.offload_activation = schedule::ActivationHome::kNvme}), 3 * 2 * input)
      << "of the layers";
}

TEST(Calibrate, UpdatesGradientsOfTheTypeThatMostElementsHave) {
  schedule::Setup setup;
  setup.compute = DType::kBf16;
  setup.layouts.resize(2);
  setup.layouts[0].elems = 100;
  setup.layouts[1].elems = 101;
  setup.uses = {2, 1};
  EXPECT_EQ(updates_read(setup), DType::kBf16) << "the tied one is smaller";
  setup.layouts[0].elems = 102;
  EXPECT_EQ(updates_read(setup), DType::kBf16) << "of two terms";
  setup.update = schedule::Update::kDelayed;
  EXPECT_EQ(updates_read(setup), DType::kF32) << "the tied one is a sum";
  setup.update = schedule::Update::kEnd;
  setup.uses = {1, 1};
  EXPECT_EQ(updates_read(setup), DType::kBf16);
  setup.micro_batches = 2;
  EXPECT_EQ(updates_read(setup), DType::kF32) << "all are sums";
}

TEST(Calibrate, NamesTheDrivesThatWereUnsteady) {
  const nvme::Speed still{{1, 1}, {1, 1}, 1, nvme::kSteady}, moving{{1, 1}, {1, 1}, 1, 0.4};
  const std::vector<Unsteady> unsteady =
      unsteady_drives({"/a", "/b", "/b/c"}, {still, moving, moving});
  ASSERT_EQ(unsteady.size(), 1U);
  EXPECT_EQ(unsteady[0].what, "the drive of /b");
  EXPECT_EQ(unsteady[0].spread, 0.4);
}

TEST(Calibrate, CopiesNothingWhereTheTiersShareMemory) {
  EXPECT_EQ(look({}, "/", schedule::Sharing::kUnified).copy, plan::Rates{}.copy);
}

TEST(Calibrate, LooksAtTheDrivesForWhateverLivesThere) {
  const TempFolder folder;
  const std::vector<schedule::Options> all{{.offload_optimizer = schedule::OptimizerHome::kNvme},
                                           {.offload_param = schedule::ParamHome::kNvme},
                                           {.offload_activation = schedule::ActivationHome::kNvme}};
  for (const schedule::Options& homes : std::span(all).first(test::by_extent(3, 3, 1))) {
    const Calibration found =
        look_at_all(homes, {folder / "a", folder / "b"}, schedule::Sharing::kSeparate);
    EXPECT_GT(found.rates.nvme_read.alone, 0);
    EXPECT_EQ(found.rates.nvme_in_flight, 16_MiB) << "16 requests of 1 MiB of the one drive";
    ASSERT_EQ(found.speeds.size(), 2U);
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
