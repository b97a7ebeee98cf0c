#include "nvme/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <filesystem>

#include "nvme/filesystem.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace {

std::deque<int> fallocate_fails_with;  ///< its next calls

}  // namespace

/// The program's, in place of the C library's.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t length) {
  if (fallocate_fails_with.empty()) {
    return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, length));
  }
  errno = fallocate_fails_with.front();
  fallocate_fails_with.pop_front();
  return -1;
}

namespace sluice::nvme {
namespace {

using test::error_of;
using test::TempFolder;
using testing::HasSubstr;

TEST(File, AMissingOneIsNamed) {
  TempFolder folder;
  const Error error =
      error_of([&] { File::open(folder / "none", Access::kRead, Caching::kPageCache); });
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_THAT(error.what(), HasSubstr(folder / "none"));
  EXPECT_THAT(error.what(), HasSubstr("No such file"));
}

TEST(File, CreatingNeverTakesOverAnExistingFile) {
  TempFolder folder;
  const File first = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
  EXPECT_EQ(
      error_of([&] { File::open(folder / "x", Access::kCreateNew, Caching::kPageCache); }).code,
      Errc::kIo);
}

TEST(File, PreallocationReservesTheSpace) {
  TempFolder folder;
  File file = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
  file.preallocate(1_MiB);
  EXPECT_EQ(file.size(), 1_MiB);
  struct stat found = {};
  ASSERT_EQ(::fstat(file.fd(), &found), 0);
  EXPECT_GE(found.st_blocks * 512, 1 << 20);
}

/// Network and FUSE filesystems, and kernels in sandboxes.
TEST(File, WhereSpaceCannotBeClaimedAFileGetsItsLength) {
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    TempFolder folder;
    File file = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
    fallocate_fails_with = {EINTR, error};
    const Claim claim = claim_space(file.fd(), 1_MiB);
    EXPECT_EQ(claim.failed, 0);
    EXPECT_FALSE(claim.claimed);
    EXPECT_EQ(file.size(), 1_MiB);
  }
}

TEST(File, ClaimingSpaceIsTriedAgainOnlyWhereItWasInterrupted) {
  TempFolder folder;
  File file = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
  fallocate_fails_with = {EINTR};
  EXPECT_TRUE(claim_space(file.fd(), 1_MiB).claimed);
  EXPECT_EQ(file.size(), 1_MiB);
  fallocate_fails_with = {EIO};
  EXPECT_EQ(claim_space(file.fd(), 2_MiB).failed, EIO);
  EXPECT_EQ(file.size(), 1_MiB);
}

TEST(File, MoreThanIsFreeIsRefusedWithNeedAndFree) {
  TempFolder folder;
  File file = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
  const Error error = error_of([&] { file.preallocate(free_bytes(folder.path()) + 1_GiB); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), HasSubstr("needs"));
  EXPECT_THAT(error.what(), HasSubstr("free on its filesystem"));
  EXPECT_EQ(file.size(), 0U);
}

TEST(File, AFileSizeLimitIsAnErrorNotASignal) {
  TempFolder folder;
  File file = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Error error = error_of([&] { file.preallocate(2_MiB); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), HasSubstr("ulimit -f"));
}

TEST(File, AnUnlinkedOneStillHoldsItsBytes) {
  TempFolder folder;
  File file = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
  file.unlink();
  EXPECT_TRUE(folder.empty());
  file.preallocate(64_KiB);
  EXPECT_EQ(file.size(), 64_KiB);
}

TEST(Filesystem, AFolderThatIsNotThereYetIsJudgedByItsParent) {
  TempFolder folder;
  EXPECT_EQ(filesystem_of(folder / "not/yet").device, filesystem_of(folder.path()).device);
  EXPECT_GT(free_bytes(folder / "not/yet"), 0U);
  EXPECT_FALSE(std::filesystem::exists(folder / "not"));
}

TEST(Filesystem, FoldersOfOneFilesystemCountOnce) {
  TempFolder folder;
  const Bytes one = free_bytes(folder.path());
  const Bytes two = free_bytes({folder.path(), folder / "b"});
  EXPECT_LT(two, one + one / 2);
}

}  // namespace
}  // namespace sluice::nvme
