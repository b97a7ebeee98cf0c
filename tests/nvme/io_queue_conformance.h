/// What every IoQueue must do. A backend is a type with
///   static std::unique_ptr<nvme::IoQueue> make(options, seam);   // throws kEnv: skipped, aloud
///   static constexpr nvme::Caching kCaching;
/// and one INSTANTIATE_TYPED_TEST_SUITE_P for this suite and the one of io_queue_faults.h.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include "nvme/io_queue.h"
#include "tests/nvme/buffer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::test {

using nvme::Access;
using nvme::File;
using nvme::KernelSeam;
using nvme::Op;
using nvme::Options;
using nvme::Request;
using testing::HasSubstr;

/// Of a file, in the page cache: not yet, or just now, on their way to the drive (cachestat, Linux
/// 6.5). nullopt: the kernel does not say, or the file lies in memory.
inline std::optional<std::uint64_t> unwritten_pages(int fd) {
  constexpr long kCachestat = 451;
  struct Range {
    std::uint64_t offset = 0, length = 0;  // to the end
  } range;
  struct Pages {
    std::uint64_t cached, dirty, in_write_back, evicted, recently_evicted;
  } pages = {};
  if (::syscall(kCachestat, fd, &range, &pages, 0) != 0) return std::nullopt;
  return pages.dirty + pages.in_write_back;
}

template <class Backend>
class IoQueueConformance : public testing::Test {
 protected:
  void SetUp() override {
    try {
      Backend::make(options(), nullptr);
    } catch (const Error& error) {
      if (error.code != Errc::kEnv) throw;
      GTEST_SKIP() << error.what();
    }
    try {
      file_.emplace(new_file("a"));
      file_->preallocate(16_MiB);
    } catch (const Error& error) {
      if (Backend::kCaching == nvme::Caching::kPageCache) throw;
      GTEST_SKIP() << error.what();
    }
  }

  static Options options() {
    Options made;
    made.block_size = 64_KiB;
    made.queue_depth = 8;
    return made;
  }
  auto make(std::shared_ptr<KernelSeam> seam = nullptr) {
    return Backend::make(options(), std::move(seam));
  }
  File new_file(const std::string& name) {
    return File::open(folder_ / name, Access::kCreateNew, Backend::kCaching);
  }
  Request request(Op op, Bytes offset, const Buffer& memory) {
    return {op, &*file_, offset, memory.data(), memory.size()};
  }

  TempFolder folder_;
  std::optional<File> file_;
};

TYPED_TEST_SUITE_P(IoQueueConformance);

TYPED_TEST_P(IoQueueConformance, WhatIsWrittenComesBack) {
  const auto queue = this->make();
  Bytes offset = 0;
  for (const Bytes n : {4_KiB, 64_KiB, 68_KiB, 1_MiB + 4_KiB}) {
    const Buffer out = Buffer::random(n, n);
    const Buffer in(n);
    queue->submit(this->request(Op::kWrite, offset, out)).wait();
    queue->submit(this->request(Op::kRead, offset, in)).wait();
    EXPECT_EQ(out, in) << n;
    offset += n;
  }
}

/// Of an error of write-back that came later nobody would know.
TYPED_TEST_P(IoQueueConformance, WhatIsWrittenIsOnTheDriveWhenItsTicketIsDone) {
  const std::optional<std::uint64_t> before = unwritten_pages(this->file_->fd());
  if (!before) GTEST_SKIP() << "this kernel does not tell what waits for the drive";
  const auto queue = this->make();
  const Buffer out = Buffer::random(1_MiB, 3);
  queue->submit(this->request(Op::kWrite, 0, out)).wait();
  EXPECT_EQ(*unwritten_pages(this->file_->fd()), 0U);
}

TYPED_TEST_P(IoQueueConformance, ManyThreadsSubmitAtOnce) {
  const auto queue = this->make();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 4; ++i) {
        const Bytes offset = (t * 4 + i) * 128_KiB;
        const Buffer out = Buffer::random(128_KiB, offset + 1);
        const Buffer in(128_KiB);
        queue->submit(this->request(Op::kWrite, offset, out)).wait();
        queue->submit(this->request(Op::kRead, offset, in)).wait();
        good += out == in ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8 * 4);
}

TYPED_TEST_P(IoQueueConformance, SeveralRequestsAreOneTicket) {
  const auto queue = this->make();
  File other = this->new_file("b");
  other.preallocate(1_MiB);
  const Buffer out = Buffer::random(512_KiB, 7);
  const Buffer in(512_KiB);
  const auto halves = [&](Op op, const Buffer& memory) {
    return std::vector<Request>{{op, &*this->file_, 0, memory.data(), 256_KiB},
                                {op, &other, 8_KiB, memory.data() + 256_KiB, 256_KiB}};
  };
  queue->submit(halves(Op::kWrite, out), nullptr).wait();
  queue->submit(halves(Op::kRead, in), nullptr).wait();
  EXPECT_EQ(out, in);
}

TYPED_TEST_P(IoQueueConformance, AQueueMayBeDeepOrHaveDepthOne) {
  for (const unsigned depth : {1U, 300U}) {
    Options options = this->options();
    options.block_size = 4_KiB;
    options.queue_depth = depth;
    options.threads = 64;
    const auto queue = TypeParam::make(options, nullptr);
    const Buffer out = Buffer::random(depth == 1 ? 64_KiB : 2_MiB, depth);
    const Buffer in(out.size());
    queue->submit(this->request(Op::kWrite, 0, out)).wait();
    queue->submit(this->request(Op::kRead, 0, in)).wait();
    EXPECT_EQ(out, in) << depth;
  }
}

TYPED_TEST_P(IoQueueConformance, ClosingFinishesWhatWasTakenAndTakesNoMore) {
  const auto queue = this->make();
  const Buffer out = Buffer::random(2_MiB, 9);
  const Ticket ticket = queue->submit(this->request(Op::kWrite, 0, out));
  queue->close();
  EXPECT_TRUE(ticket.done());
  ticket.wait();
  EXPECT_EQ(error_of([&] { queue->submit(this->request(Op::kRead, 0, out)); }).code, Errc::kLogic);
  queue->close();
}

TYPED_TEST_P(IoQueueConformance, ADroppedQueueFinishesWhatItTook) {
  const Buffer out = Buffer::random(2_MiB, 10);
  Ticket ticket;
  {
    const auto queue = this->make();
    ticket = queue->submit(this->request(Op::kWrite, 0, out));
  }
  EXPECT_TRUE(ticket.done());
  ticket.wait();
}

TYPED_TEST_P(IoQueueConformance, WhatIsKeptLivesUntilTheTicketIsDone) {
  const auto queue = this->make();
  auto memory = std::make_shared<Buffer>(4_MiB);
  const std::weak_ptr<Buffer> watch = memory;
  const Request request = this->request(Op::kRead, 0, *memory);
  Ticket ticket = queue->submit(request, std::move(memory));
  ticket.wait();
  EXPECT_TRUE(watch.expired());
}

TYPED_TEST_P(IoQueueConformance, NothingToDoIsDone) {
  const auto queue = this->make();
  EXPECT_TRUE(queue->submit(std::span<const Request>(), nullptr).wait_error() == nullptr);
  EXPECT_TRUE(queue->submit({Op::kRead, &*this->file_, 0, nullptr, 0}).wait_error() == nullptr);
}

TYPED_TEST_P(IoQueueConformance, FilesAndMemoryThatAreEnrolledAreUsedLikeOthers) {
  const auto queue = this->make();
  // Of more than one large page each: io_uring gets them in parts.
  const Buffer out = Buffer::random(5_MiB, 11);
  const Buffer in(5_MiB);
  const Buffer other(5_MiB);
  // All of one buffer, and half of the other: a piece may lie across the end of what is known.
  queue->enrol({{&*this->file_}, {out.span(), in.span().first(2_MiB + 512_KiB + 4_KiB)}});
  queue->submit(this->request(Op::kWrite, 64_KiB, out)).wait();
  queue->submit(this->request(Op::kRead, 64_KiB, in)).wait();
  queue->submit(this->request(Op::kRead, 64_KiB, other)).wait();
  EXPECT_EQ(out, in);
  EXPECT_EQ(out, other);
  File stranger = this->new_file("b");
  stranger.preallocate(5_MiB);
  queue->submit({Op::kWrite, &stranger, 0, out.data(), out.size()}).wait();
  const Buffer back(5_MiB);
  queue->submit({Op::kRead, &stranger, 0, back.data(), back.size()}).wait();
  EXPECT_EQ(out, back);
  EXPECT_FALSE(queue->describe().empty());
}

TYPED_TEST_P(IoQueueConformance, ATicketIsForReadsOrForWrites) {
  const auto queue = this->make();
  const Buffer memory(128_KiB);
  const std::vector<Request> both{{Op::kRead, &*this->file_, 0, memory.data(), 64_KiB},
                                  {Op::kWrite, &*this->file_, 0, memory.data(), 64_KiB}};
  EXPECT_EQ(error_of([&] { queue->submit(both, nullptr); }).code, Errc::kLogic);
}

TYPED_TEST_P(IoQueueConformance, ARequestThatCannotBeRightIsRefused) {
  const auto queue = this->make();
  const Buffer memory(8_KiB);
  const auto refused = [&](Request request) {
    EXPECT_EQ(error_of([&] { queue->submit(request); }).code, Errc::kLogic);
  };
  refused({Op::kRead, nullptr, 0, memory.data(), 4_KiB});
  refused({Op::kRead, &*this->file_, 0, nullptr, 4_KiB});
  refused({Op::kRead, &*this->file_, ~Bytes{0} - 4095, memory.data(), 4_KiB});
  if (TypeParam::kCaching == nvme::Caching::kPageCache) return;
  refused({Op::kRead, &*this->file_, 512, memory.data(), 4_KiB});
  refused({Op::kRead, &*this->file_, 0, memory.data() + 512, 4_KiB});
  refused({Op::kRead, &*this->file_, 0, memory.data(), 512});
}

REGISTER_TYPED_TEST_SUITE_P(IoQueueConformance, WhatIsWrittenComesBack,
                            WhatIsWrittenIsOnTheDriveWhenItsTicketIsDone, ManyThreadsSubmitAtOnce,
                            SeveralRequestsAreOneTicket, AQueueMayBeDeepOrHaveDepthOne,
                            ClosingFinishesWhatWasTakenAndTakesNoMore,
                            ADroppedQueueFinishesWhatItTook, WhatIsKeptLivesUntilTheTicketIsDone,
                            NothingToDoIsDone, FilesAndMemoryThatAreEnrolledAreUsedLikeOthers,
                            ATicketIsForReadsOrForWrites, ARequestThatCannotBeRightIsRefused);

}  // namespace sluice::test
