#include "engine/checkpoint/file.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::FileSizeLimit;
using test::TempFolder;

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(File, ReadsWhatWasWritten) {
  const TempFolder folder;
  File file = File::create(folder / "a");
  file.reserve(10);
  file.write(4, bytes("efgh"));
  file.write(0, bytes("abcd"));
  file.sync();
  EXPECT_EQ(file.size(), 10U);
  EXPECT_EQ(folder.read("a"), std::string("abcdefgh\0\0", 10));
  std::string back(3, ' ');
  File::open(folder / "a").read(3, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, "def");
}

TEST(File, AShortWriteIsContinuedAndItsErrorSaysWhere) {
  const TempFolder folder;
  File file = File::create(folder / "a");
  const std::string data(200, 'x');
  {
    const FileSizeLimit limit(120);
    expect_error(Errc::kIo, {"a: writing 80 bytes at 120 failed", std::strerror(EFBIG)},
                 [&] { file.write(0, bytes(data)); });
  }
  EXPECT_EQ(file.size(), 120U) << "the kernel took a part, which is not repeated";
  file.write(120, bytes(data));
  EXPECT_EQ(folder.read("a"), std::string(320, 'x'));
}

TEST(File, ReadingPastTheEndSaysThatTheFileWasCut) {
  const TempFolder folder;
  folder.write("a", "abc");
  std::string back(5, ' ');
  const File file = File::open(folder / "a");
  expect_error(Errc::kFormat, {"a: ends at byte 3, 2 bytes early"},
               [&] { file.read(0, std::as_writable_bytes(std::span(back))); });
}

TEST(File, ErrorsNameTheFileAndTheReason) {
  const TempFolder folder;
  expect_error(Errc::kIo, {"missing", "No such file"}, [&] { File::open(folder / "missing"); });
  folder.write("there", "x");
  expect_error(Errc::kIo, {"there", "File exists"}, [&] { File::create(folder / "there"); });
  File readonly = File::open(folder / "there");
  expect_error(Errc::kIo, {"writing 3 bytes at 7"}, [&] { readonly.write(7, bytes("abc")); });
  expect_error(Errc::kIo, {"nowhere"}, [&] { sync_folder(folder / "nowhere"); });
}

TEST(File, AFullDiskIsToldWithNeedAndFree) {
  const TempFolder folder;
  EXPECT_NO_THROW(check_free_space(folder.path(), 1, "weights"));
  const Bytes free = std::filesystem::space(folder.path()).available;
  EXPECT_NO_THROW(check_free_space(folder.path(), free / 2, "weights"));
  expect_error(Errc::kBudget, {"needed for weights"},
               [&] { check_free_space(folder.path(), free + free / 2, "weights"); });
  expect_error(Errc::kBudget, {"1024.0 PiB needed", "free"},
               [&] { check_free_space(folder.path(), Bytes{1} << 60, "weights"); });
}

// Only there: a tmpfs sees at once what does not fit, another file system would first be filled.
TEST(File, SpaceThatADiskDoesNotHaveIsABudget) {
  struct statfs info {};
  if (::statfs("/dev/shm", &info) != 0 || info.f_type != TMPFS_MAGIC ||
      ::access("/dev/shm", W_OK) != 0) {
    GTEST_SKIP() << "no tmpfs at /dev/shm";
  }
  const TempFolder folder("/dev/shm");
  File file = File::create(folder / "a");
  const Bytes all = static_cast<Bytes>(info.f_blocks) * static_cast<Bytes>(info.f_bsize);
  expect_error(Errc::kBudget, {"a: reserving", "free space there"}, [&] { file.reserve(2 * all); });
}

}  // namespace
}  // namespace sluice::checkpoint
