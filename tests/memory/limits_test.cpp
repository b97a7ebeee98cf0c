#include "engine/memory/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "nvme/filesystem.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::memory {
namespace {

using test::error_of;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// What a user may still write, as the system says.
Bytes free_now(const std::string& folder) {
  struct statvfs seen {};
  EXPECT_EQ(::statvfs(folder.c_str(), &seen), 0);
  return Bytes{seen.f_bavail} * seen.f_frsize;
}

Options small_options() {
  Options options;
  options.gpu.limit = Bytes{64_MiB};
  options.cpu.limit = Bytes{32_MiB};
  options.nvme.limit = Bytes{16_MiB};
  return options;
}

TEST(HostBytes, AreThoseOfTheDeviceTooWhereItComputesInThem) {
  EXPECT_EQ(host_bytes({1_MiB, 2_MiB, 4_MiB}), gpu::device().unified ? 3_MiB : 2_MiB);
}

TEST(Limits, OfASizeAreThatSize) {
  EXPECT_EQ(resolve_limits(small_options()), (Limits{64_MiB, 32_MiB, 16_MiB}));
}

/// 32 GiB of memory, 20 of them available.
Machine machine(bool unified) {
  return {{.name = "card", .memory = 32_GiB, .unified = unified}, {20_GiB, "this machine"}};
}
Machine apart() {
  return machine(false);
}
Machine unified() {
  return machine(true);
}

Options sized(Limit gpu, std::optional<Limit> cpu) {
  Options options;
  options.gpu.limit = gpu;
  options.cpu.limit = cpu;
  return options;
}

TEST(Limits, AnotherDeviceThanTheBuildHasIsRefusedWithTheBuildThatHasIt) {
  Options options = small_options();
  for (const gpu::Backend has : {gpu::Backend::kHost, gpu::Backend::kCuda}) {
    Machine on = apart();
    on.device.backend = has;
    for (const gpu::Backend asked : {gpu::Backend::kHost, gpu::Backend::kCuda}) {
      options.gpu.device = asked;
      if (asked == has) {
        EXPECT_NO_THROW(resolve_limits(options, on));
        continue;
      }
      const Error error = error_of([&] { resolve_limits(options, on); });
      EXPECT_EQ(error.code, Errc::kDevice);
      EXPECT_THAT(error.what(), HasSubstr(asked == gpu::Backend::kCuda ? "cmake --preset cuda"
                                                                       : "./sluice build"));
    }
  }
}

std::string refusal(const Options& options, const Machine& on) {
  const Error error = error_of([&] { resolve_limits(options, on); });
  EXPECT_EQ(error.code, Errc::kBudget);
  return error.what();
}

TEST(Limits, OfADeviceOfItsOwnAreAFractionOfItsMemory) {
  EXPECT_EQ(resolve_limits(sized(0.5, 1_GiB), apart())[0], 16_GiB);
  EXPECT_EQ(resolve_limits(sized(1.0, 1_GiB), apart())[0], 32_GiB);
  EXPECT_EQ(resolve_limits(sized(32_GiB, 20_GiB), apart())[0], 32_GiB);
}

TEST(Limits, OfADeviceThatOthersUseAreOfWhatIsFree) {
  Machine shared = apart();
  shared.device_free = 8_GiB;
  EXPECT_EQ(resolve_limits(sized(0.5, 1_GiB), shared)[0], 4_GiB);
  EXPECT_EQ(resolve_limits(sized(8_GiB, 1_GiB), shared)[0], 8_GiB);
  EXPECT_THAT(refusal(sized(9_GiB, 1_GiB), shared),
              HasSubstr("tiers.gpu.limit is 9.0 GiB, card has 32.0 GiB, 8.0 GiB free: other "
                        "processes hold the rest: lower it"));
}

TEST(Limits, OfTheHostAreAFractionOfWhatIsAvailableOrLeaveTheReserve) {
  EXPECT_EQ(resolve_limits(sized(1_GiB, 0.5), apart())[1], 10_GiB);
  EXPECT_EQ(resolve_limits(sized(1_GiB, std::nullopt), apart())[1], 16_GiB);
}

TEST(Limits, OfFoldersInMemoryAreNothingUnlessTheyAreAllowed) {
  if (nvme::filesystem_of("/dev/shm").medium != nvme::Medium::kRam) GTEST_SKIP() << "no tmpfs";
  Options options = sized(1_GiB, 1_GiB);
  options.nvme.paths = {"/dev/shm/sluice"};
  EXPECT_EQ(resolve_limits(options, apart())[2], 0U);
  options.nvme.allow_ram_path = true;
  EXPECT_GT(resolve_limits(options, apart())[2], 0U);
}

TEST(Limits, AReserveOfAllThereIsIsRefused) {
  Options options = sized(1_GiB, std::nullopt);
  options.cpu.reserve = 20_GiB;
  EXPECT_THAT(refusal(options, apart()),
              HasSubstr("tiers.cpu.reserve 20.0 GiB, this machine has 20.0 GiB available: lower"));
}

TEST(Limits, BeyondWhatThereIsAreRefused) {
  EXPECT_THAT(refusal(sized(32_GiB + 1, 1_GiB), apart()),
              HasSubstr("tiers.gpu.limit is 32.0 GiB, card has 32.0 GiB: lower it"));
  EXPECT_THAT(refusal(sized(21_GiB, 1_GiB), unified()),
              HasSubstr("tiers.gpu.limit is 21.0 GiB, this machine has 20.0 GiB available"));
  EXPECT_THAT(refusal(sized(1_GiB, 20_GiB + 1), apart()),
              HasSubstr("tiers.cpu.limit is 20.0 GiB, this machine has 20.0 GiB available"));
}

TEST(Limits, BeyondTheCgroupAreRefusedWithItsName) {
  Machine small = apart();
  small.host = {2_GiB, "the cgroup /job (memory.max 3.0 GiB)"};
  EXPECT_THAT(refusal(sized(1_GiB, 4_GiB), small),
              HasSubstr("tiers.cpu.limit is 4.0 GiB, the cgroup /job (memory.max 3.0 GiB) has 2.0 "
                        "GiB available: lower it"));
}

TEST(Limits, OfOneMemoryMustFitItTogether) {
  EXPECT_EQ(resolve_limits(sized(12_GiB, 8_GiB), unified())[1], 8_GiB);
  EXPECT_THAT(refusal(sized(12_GiB, 9_GiB), unified()),
              AllOf(HasSubstr("12.0 GiB"), HasSubstr("9.0 GiB"), HasSubstr("20.0 GiB available"),
                    HasSubstr("host memory")));
  EXPECT_EQ(resolve_limits(sized(12_GiB, 9_GiB), apart())[1], 9_GiB);
}

TEST(Limits, OfOneMemoryTakeWhatASizeLeaves) {
  EXPECT_EQ(resolve_limits(sized(12_GiB, std::nullopt), unified())[1], 4_GiB);
  EXPECT_EQ(resolve_limits(sized(12_GiB, 0.9), unified())[1], 8_GiB);
  EXPECT_EQ(resolve_limits(sized(0.95, 15_GiB), unified())[0], 5_GiB);
  EXPECT_EQ(resolve_limits(sized(0.1, 15_GiB), unified())[0], 2_GiB);
}

TEST(Limits, OfOneMemoryWithoutSizesAreTheNeedsAndHalfOfTheRest) {
  const Options options = sized(1.0, 1.0);
  const Limits limits = resolve_limits(options, unified());
  EXPECT_EQ(share_host_memory(limits, {2_GiB, 8_GiB, 0}, options, unified()),
            (Limits{7_GiB, 13_GiB, 0}));
  EXPECT_EQ(share_host_memory(limits, {2_GiB, 8_GiB, 0}, options, apart()), limits);
  const Options automatic = sized(1.0, std::nullopt);  // with a reserve of 4 GiB
  EXPECT_EQ(share_host_memory(resolve_limits(automatic, unified()), {2_GiB, 8_GiB, 0}, automatic,
                              unified()),
            (Limits{5_GiB, 11_GiB, 0}));
}

TEST(Limits, OfOneMemoryThatFitAreNotChanged) {
  const Options options = sized(0.25, 0.5);
  EXPECT_EQ(share_host_memory({5_GiB, 10_GiB, 0}, {1_GiB, 1_GiB, 0}, options, unified()),
            (Limits{5_GiB, 10_GiB, 0}));
  const Options sizes = sized(12_GiB, 8_GiB);
  EXPECT_EQ(share_host_memory({12_GiB, 8_GiB, 0}, {1_GiB, 1_GiB, 0}, sizes, unified()),
            (Limits{12_GiB, 8_GiB, 0}));
}

TEST(Limits, OfOneMemoryAreNeverRaisedByTheSharing) {
  const Options small_gpu = sized(0.3, 0.9);
  EXPECT_EQ(share_host_memory({6_GiB, 18_GiB, 0}, {2_GiB, 8_GiB, 0}, small_gpu, unified()),
            (Limits{6_GiB, 14_GiB, 0}));
  const Options small_cpu = sized(0.9, 0.5);
  EXPECT_EQ(share_host_memory({18_GiB, 10_GiB, 0}, {2_GiB, 8_GiB, 0}, small_cpu, unified()),
            (Limits{7_GiB, 10_GiB, 0}));
  const Options uneven = sized(0.75, 0.1);
  EXPECT_EQ(share_host_memory({15_GiB, 2_GiB, 0}, {1_GiB, 1_GiB, 0}, uneven, unified()),
            (Limits{15_GiB, 2_GiB, 0}));
  const Options into_reserve = sized(18_GiB, std::nullopt);
  const Limits given = resolve_limits(into_reserve, unified());
  EXPECT_EQ(share_host_memory(given, {2_GiB, 8_GiB, 0}, into_reserve, unified()), given);
}

TEST(Limits, OfThisMachineAreNoMoreThanIsAvailable) {
  const auto pages = static_cast<Bytes>(::sysconf(_SC_PHYS_PAGES));
  const Bytes limit = resolve_limits(sized(1_MiB, 1.0))[1];
  EXPECT_GT(limit, 0U);
  EXPECT_LT(limit, pages * static_cast<Bytes>(::sysconf(_SC_PAGESIZE)));
}

TEST(CheckAvailable, RefusesWhatTheSystemWouldKillFor) {
  const HostMemory host{2_GiB, "the cgroup /job (memory.max 3.0 GiB)"};
  EXPECT_NO_THROW(check_available(2_GiB, host));
  const Error error = error_of([&] { check_available(2_GiB + 1, host); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("/job"), HasSubstr("2.0 GiB available")));
}

TEST(Limits, OfNvmeAreAFractionOfWhatItsFilesystemsHaveFree) {
  TempFolder folder;
  Options options = small_options();
  options.nvme.paths = {folder / "a", folder / "b"};  // one filesystem: counted once
  options.nvme.limit = 0.5;
  // The machine is shared: what counts is a look during which nobody wrote.
  for (int look = 0; look < 1000; ++look) {
    const Bytes free = free_now(folder.path());
    const Bytes limit = resolve_limits(options)[2];
    if (free_now(folder.path()) != free) continue;
    EXPECT_EQ(limit, free / 2);
    EXPECT_TRUE(folder.empty());
    return;
  }
  GTEST_SKIP() << "others write to this disk all the time";
}

TEST(Limits, OfNvmeBeyondWhatIsFreeAreRefused) {
  TempFolder folder;
  Options options = small_options();
  options.nvme.paths = {folder / "a"};
  options.nvme.limit = 2 * nvme::free_bytes(folder.path());
  const Error error = error_of([&] { resolve_limits(options); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("tiers.nvme.limit is "), HasSubstr(" free in "),
                                  HasSubstr(folder / "a")));
}

TEST(Limits, OfNvmeWithoutPathsAreNothing) {
  Options options = small_options();
  options.nvme.limit = 0.9;
  EXPECT_EQ(resolve_limits(options)[2], 0U);
}

}  // namespace
}  // namespace sluice::memory
