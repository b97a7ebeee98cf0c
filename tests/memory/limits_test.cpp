#include "engine/memory/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/device.h"
#include "nvme/filesystem.h"
#include "tests/nvme/scratch.h"

namespace sluice::memory {
namespace {

using test::error_of;
using test::ScratchFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The machine is shared: what is free moves between two looks at it.
constexpr Bytes kDrift = 8_GiB;

Options small_options() {
  Options options;
  options.gpu.limit = Bytes{64_MiB};
  options.cpu.limit = Bytes{32_MiB};
  options.nvme.limit = Bytes{16_MiB};
  return options;
}

TEST(Limits, OfASizeAreThatSize) {
  EXPECT_EQ(resolve_limits(small_options()), (std::array<Bytes, kTiers>{64_MiB, 32_MiB, 16_MiB}));
}

TEST(Limits, OfTheGpuAreAFractionOfTheDevicesMemory) {
  Options options = small_options();
  options.gpu.limit = 0.5;
  EXPECT_NEAR(static_cast<double>(resolve_limits(options)[0]),
              static_cast<double>(gpu::device().memory) / 2, 1);
  options.gpu.limit = 1.0;
  EXPECT_EQ(resolve_limits(options)[0], gpu::device().memory);
}

TEST(Limits, BeyondTheDevicesMemoryAreRefused) {
  Options options = small_options();
  options.gpu.limit = gpu::device().memory + 1;
  const Error error = error_of([&] { resolve_limits(options); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("tiers.gpu.limit is "), HasSubstr(gpu::device().name),
                                  HasSubstr("lower it")));
}

TEST(Limits, BeyondTheMemoryThatIsAvailableAreRefused) {
  Options options = small_options();
  options.cpu.limit = Bytes{1} << 60;
  const Error error = error_of([&] { resolve_limits(options); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("tiers.cpu.limit is "), HasSubstr(" available"),
                                  HasSubstr("lower it")));
}

TEST(Limits, OfTheHostLeaveTheReserveToOthers) {
  Options options = small_options();
  options.cpu.limit.reset();
  options.cpu.reserve = 0;
  const Bytes all = resolve_limits(options)[1];
  EXPECT_GT(all, 0U);
  EXPECT_LE(all, gpu::device().memory + kDrift);
  options.cpu.reserve = Bytes{1} << 60;
  EXPECT_EQ(resolve_limits(options)[1], 0U);
}

TEST(Limits, OfNvmeAreAFractionOfWhatItsFilesystemsHaveFree) {
  ScratchFolder folder;
  Options options = small_options();
  options.nvme.paths = {folder / "a", folder / "b"};  // one filesystem: counted once
  options.nvme.limit = 0.5;
  const auto free = static_cast<double>(nvme::free_bytes(folder.path()));
  const auto limit = static_cast<double>(resolve_limits(options)[2]);
  EXPECT_NEAR(limit, free / 2, static_cast<double>(kDrift));
  EXPECT_TRUE(folder.empty());
}

TEST(Limits, OfNvmeWithoutPathsAreNothing) {
  Options options = small_options();
  options.nvme.limit = 0.9;
  EXPECT_EQ(resolve_limits(options)[2], 0U);
}

}  // namespace
}  // namespace sluice::memory
