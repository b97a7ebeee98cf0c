#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "nvme/io_queue.h"
#include "nvme/store.h"
#include "nvme/thread_queue.h"
#include "nvme/uring_queue.h"
#include "tests/nvme/buffer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::nvme {
namespace {

using test::Buffer;
using test::error_of;
using testing::HasSubstr;

/// Runs `action` on a thread that the kernel answers these system calls with `error`; so it does
/// those that the thread starts.
template <class Action>
void answered(int error, const std::vector<unsigned>& system_calls, const Action& action) {
  std::thread([&] {
    std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)};  // the first word: which
    for (const unsigned call : system_calls) {
      code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
      code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    action();
  }).join();
}

/// As containers do.
template <class Action>
void without(const std::vector<unsigned>& system_calls, const Action& action) {
  answered(EPERM, system_calls, action);
}

TEST(MakeQueue, FallsBackToLibaioAloudWhereIoUringIsForbidden) {
  for (const unsigned call : {unsigned{SYS_io_uring_setup}, unsigned{SYS_io_uring_enter}}) {
    without({call}, [] {
      testing::internal::CaptureStderr();
      const auto queue = make_queue({}, Caching::kDirect);
      const std::string said = testing::internal::GetCapturedStderr();
      EXPECT_THAT(queue->describe(), HasSubstr("libaio"));
      EXPECT_THAT(queue->why(), HasSubstr("io_uring"));
      EXPECT_THAT(said, HasSubstr("warning"));
      EXPECT_THAT(said, HasSubstr("io_uring"));
    });
  }
}

/// It goes into a run's metrics.
TEST(MakeQueue, AStoreSaysWhyItsEngineWasChosen) {
  const test::TempFolder folder;
  Options options;
  options.direct = Direct::kFalse;
  const auto said = [&] {
    return Store({folder.path()}, 1_MiB, options, AllowRam::kYes).describe();
  };
  testing::internal::CaptureStderr();
  EXPECT_THAT(said(), HasSubstr("(requests go through the page cache)"));
  options.engine = Engine::kThreads;
  EXPECT_THAT(said(), testing::Not(HasSubstr("(requests")));
  testing::internal::GetCapturedStderr();
}

TEST(MakeQueue, ThroughThePageCacheTakesThreadsWithoutAWord) {
  testing::internal::CaptureStderr();
  const auto queue = make_queue({}, Caching::kPageCache);
  EXPECT_THAT(queue->describe(), HasSubstr("threads"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(MakeQueue, FallsBackToThreadsAloudWhereAllElseIsForbidden) {
  for (const unsigned call : {unsigned{SYS_io_setup}, unsigned{SYS_io_submit}}) {
    without({SYS_io_uring_setup, call}, [] {
      testing::internal::CaptureStderr();
      const auto queue = make_queue({}, Caching::kDirect);
      const std::string said = testing::internal::GetCapturedStderr();
      EXPECT_THAT(queue->describe(), HasSubstr("threads"));
      EXPECT_THAT(said, HasSubstr("warning"));
      EXPECT_THAT(said, HasSubstr("io_uring"));
      EXPECT_THAT(said, HasSubstr("libaio"));
    });
  }
}

TEST(MakeQueue, WhatWasAskedForByNameIsNotReplaced) {
  without({SYS_io_uring_setup}, [] {
    Options options;
    options.engine = Engine::kIoUring;
    EXPECT_EQ(error_of([&] { make_queue(options, Caching::kDirect); }).code, Errc::kEnv);
  });
}

TEST(MakeQueue, SaysHowToAllowIoUring) {
  EXPECT_THAT(why_no_uring(EPERM, 0), HasSubstr("seccomp"));
  EXPECT_THAT(why_no_uring(EPERM, 2), HasSubstr("sysctl -w kernel.io_uring_disabled=0"));
  EXPECT_THAT(why_no_uring(ENOSYS, 0), HasSubstr("5.6"));
  EXPECT_THAT(why_no_uring(ENOMEM, 0), HasSubstr("ulimit -l"));
}

TEST(MakeQueue, OptionsOutOfRangeAreRefusedByName) {
  const auto refused = [](const Options& options, const char* key) {
    const Error error = error_of([&] { make_queue(options, Caching::kDirect); });
    EXPECT_EQ(error.code, Errc::kConfig);
    EXPECT_THAT(error.what(), HasSubstr(key));
  };
  Options odd_block;
  odd_block.block_size = 6000;
  refused(odd_block, "aio.block_size");
  Options no_depth;
  no_depth.queue_depth = 0;
  refused(no_depth, "aio.queue_depth");
  Options no_threads;
  no_threads.threads = 0;
  refused(no_threads, "aio.threads");
}

/// The descriptor of this process's newest ring, or -1.
int find_ring() {
  int found = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("io_uring") == std::string::npos) continue;
    found = std::max(found, std::stoi(entry.path().filename().string()));
  }
  return found;
}

TEST(UringQueue, ALostRingFailsEveryTicketInsteadOfHanging) {
  Options options;
  options.block_size = 4_KiB;
  options.queue_depth = 2;
  std::unique_ptr<IoQueue> queue;
  try {
    queue = make_uring_queue(options, nullptr);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  test::TempFolder folder;
  File file = File::open(folder / "x", Access::kCreateNew, Caching::kPageCache);
  file.preallocate(1_MiB);
  const Buffer memory(1_MiB);
  const Request request{Op::kRead, &file, 0, memory.data(), memory.size()};
  queue->submit(request).wait();

  const int ring = find_ring();
  ASSERT_GE(ring, 0);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::dup2(null, ring), ring);
  ::close(null);
  const Error error = error_of(queue->submit(request));
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_THAT(error.what(), HasSubstr("io_uring stopped working"));
  EXPECT_EQ(error_of([&] { queue->submit(request); }).code, Errc::kIo);
}

/// What write-back says, and nobody else.
TEST(ThreadQueue, AWriteThroughThePageCacheCarriesTheErrorOfWriteBack) {
  const test::TempFolder folder;
  const File file = File::open(folder / "a", Access::kCreateNew, Caching::kPageCache);
  const Buffer memory(64_KiB);
  const auto write = [&] {
    const auto queue = make_thread_queue({}, nullptr);
    queue->submit(Request{Op::kWrite, &file, 0, memory.data(), memory.size()}).wait();
  };
  answered(EIO, {SYS_sync_file_range}, [&] {
    const Error error = error_of(write);
    EXPECT_EQ(error.code, Errc::kIo);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(file.path()), HasSubstr("Input/output")));
  });
  // Where the kernel has no such call, all of the file is synced.
  answered(ENOSYS, {SYS_sync_file_range}, write);
  answered(ENOSYS, {SYS_sync_file_range, SYS_fdatasync},
           [&] { EXPECT_EQ(error_of(write).code, Errc::kIo); });
}

}  // namespace
}  // namespace sluice::nvme
