#include "engine/checkpoint/file.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "tests/checkpoint/scratch.h"

namespace sluice::checkpoint {
namespace {

/// Lowers the size a file may have, so that the kernel cuts a write short and then refuses.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_action_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit lower{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_action_);
  }

 private:
  rlimit old_{};
  sighandler_t old_action_;
};

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(File, ReadsWhatWasWritten) {
  const Scratch scratch;
  File file = File::create(scratch / "a");
  file.reserve(10);
  file.write(4, bytes("efgh"));
  file.write(0, bytes("abcd"));
  file.sync();
  EXPECT_EQ(file.size(), 10U);
  EXPECT_EQ(slurp(scratch / "a"), std::string("abcdefgh\0\0", 10));
  std::string back(3, ' ');
  File::open(scratch / "a").read(3, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, "def");
}

TEST(File, AShortWriteIsContinuedAndItsErrorSaysWhere) {
  const Scratch scratch;
  File file = File::create(scratch / "a");
  const std::string data(200, 'x');
  {
    const FileSizeLimit limit(120);
    expect_error(Errc::kIo, {"a: writing 80 bytes at 120 failed", std::strerror(EFBIG)},
                 [&] { file.write(0, bytes(data)); });
  }
  EXPECT_EQ(file.size(), 120U) << "the kernel took a part, which is not repeated";
  file.write(120, bytes(data));
  EXPECT_EQ(slurp(scratch / "a"), std::string(320, 'x'));
}

TEST(File, ReadingPastTheEndSaysThatTheFileWasCut) {
  const Scratch scratch;
  spit(scratch / "a", "abc");
  std::string back(5, ' ');
  const File file = File::open(scratch / "a");
  expect_error(Errc::kFormat, {"a: ends at byte 3, 2 bytes early"},
               [&] { file.read(0, std::as_writable_bytes(std::span(back))); });
}

TEST(File, ErrorsNameTheFileAndTheReason) {
  const Scratch scratch;
  expect_error(Errc::kIo, {"missing", "No such file"}, [&] { File::open(scratch / "missing"); });
  spit(scratch / "there", "x");
  expect_error(Errc::kIo, {"there", "File exists"}, [&] { File::create(scratch / "there"); });
  File readonly = File::open(scratch / "there");
  expect_error(Errc::kIo, {"writing 3 bytes at 7"}, [&] { readonly.write(7, bytes("abc")); });
  expect_error(Errc::kIo, {"nowhere"}, [&] { sync_folder(scratch / "nowhere"); });
}

TEST(File, AFullDiskIsToldWithNeedAndFree) {
  const Scratch scratch;
  EXPECT_NO_THROW(check_free_space(scratch.path(), 1));
  expect_error(Errc::kBudget, {"1024.0 PiB needed", "free"},
               [&] { check_free_space(scratch.path(), Bytes{1} << 60); });
}

}  // namespace
}  // namespace sluice::checkpoint
