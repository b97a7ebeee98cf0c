#include "nvme/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "tests/nvme/buffer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::nvme {
namespace {

using test::Buffer;
using test::error_of;
using testing::HasSubstr;

class Advance : public testing::Test {
 protected:
  Piece piece(Op op) const {
    return {nullptr, {op, &file_, 8_KiB, memory_.data(), 64_KiB}, 0, {}, {}};
  }
  static std::string why(const Piece& piece) {
    return error_of([&] { std::rethrow_exception(piece.error); }).what();
  }

  test::TempFolder folder_;
  // Only its caching matters here, so O_DIRECT need not work in the folder.
  File file_ = File::open(folder_ / "file", Access::kCreateNew, Caching::kPageCache);
  Buffer memory_{64_KiB};
};

TEST_F(Advance, AWholeTransferIsDone) {
  Piece whole = piece(Op::kWrite);
  EXPECT_EQ(advance(whole, 64 << 10), Step::kDone);
}

TEST_F(Advance, AShortOneGoesOnWhereItStopped) {
  Piece left = piece(Op::kRead);
  EXPECT_EQ(advance(left, 1000), Step::kAgain);
  EXPECT_EQ(left.rest.offset, 8_KiB + 1000);
  EXPECT_EQ(left.rest.bytes, 64_KiB - 1000);
  EXPECT_EQ(left.rest.data, memory_.data() + 1000);
}

TEST_F(Advance, AnEmptyReadIsTheEndOfTheFile) {
  Piece ended = piece(Op::kRead);
  EXPECT_EQ(advance(ended, 0), Step::kFailed);
  EXPECT_THAT(why(ended), HasSubstr("the file ends here"));
}

TEST_F(Advance, AWriteThatGetsNowhereIsGivenUp) {
  Piece stuck = piece(Op::kWrite);
  unsigned tries = 1;
  while (advance(stuck, 0) == Step::kAgain) ASSERT_LT(++tries, 1000U);
  EXPECT_NE(stuck.error, nullptr);
  EXPECT_GT(tries, 1U);
}

TEST_F(Advance, TryLaterIsTriedLaterButNotForEver) {
  Piece busy = piece(Op::kRead);
  EXPECT_EQ(advance(busy, -EINTR), Step::kAgain);
  unsigned tries = 1;
  while (advance(busy, -EAGAIN) == Step::kAgainLater) ASSERT_LT(++tries, 100000U);
  EXPECT_THAT(why(busy), HasSubstr("errno 11"));
  EXPECT_GT(tries, 100U);
}

TEST_F(Advance, AKernelThatMovesTooMuchIsNotBelieved) {
  Piece odd = piece(Op::kRead);
  EXPECT_EQ(advance(odd, (64 << 10) + 1), Step::kFailed);
}

TEST_F(Advance, UnderDirectIoARaggedEndIsTransferredAgain) {
  File direct = [&] {
    try {
      return File::open(folder_ / "direct", Access::kCreateNew, Caching::kDirect);
    } catch (const Error&) {
      return File::open(folder_ / "file", Access::kRead, Caching::kPageCache);
    }
  }();
  if (direct.caching() != Caching::kDirect) GTEST_SKIP() << "no O_DIRECT in " << folder_.path();
  Piece left{nullptr, {Op::kRead, &direct, 0, memory_.data(), 64_KiB}, 0, {}, {}};
  EXPECT_EQ(advance(left, 5000), Step::kAgain);
  EXPECT_EQ(left.rest.offset, 4096U);
  EXPECT_EQ(left.rest.bytes, 64_KiB - 4096);
  unsigned tries = 1;
  while (advance(left, 100) == Step::kAgain) ASSERT_LT(++tries, 1000U);
  EXPECT_EQ(left.rest.offset, 4096U);
}

TEST(Job, IsCutIntoBlocksAndEndsWithTheLast) {
  test::TempFolder folder;
  const File file = File::open(folder / "file", Access::kCreateNew, Caching::kPageCache);
  const Buffer memory(40_KiB);
  const Request request{Op::kRead, &file, 4_KiB, memory.data(), 40_KiB};
  Job job({&request, 1}, 16_KiB, nullptr);
  const Ticket ticket = job.ticket();
  Bytes offset = 4_KiB;
  for (const Bytes n : {16_KiB, 16_KiB, 8_KiB}) {
    ASSERT_TRUE(job.has_next());
    const Request piece = job.next();
    EXPECT_EQ(piece.offset, offset);
    EXPECT_EQ(piece.bytes, n);
    offset += n;
  }
  EXPECT_FALSE(job.has_next());
  EXPECT_FALSE(job.end(nullptr));
  EXPECT_FALSE(job.end(nullptr));
  EXPECT_TRUE(job.end(nullptr));
  EXPECT_FALSE(ticket.done());
  job.finish();
  ticket.wait();
}

TEST(Job, IssuesNothingMoreAfterAnError) {
  test::TempFolder folder;
  const File file = File::open(folder / "file", Access::kCreateNew, Caching::kPageCache);
  const Buffer memory(64_KiB);
  const Request request{Op::kRead, &file, 0, memory.data(), 64_KiB};
  Job job({&request, 1}, 16_KiB, nullptr);
  job.next();
  job.next();
  EXPECT_FALSE(job.end(std::make_exception_ptr(Error(Errc::kIo, "first"))));
  EXPECT_FALSE(job.has_next());
  EXPECT_TRUE(job.end(std::make_exception_ptr(Error(Errc::kIo, "second"))));
  const Ticket ticket = job.ticket();
  job.finish();
  EXPECT_STREQ(error_of(ticket).what(), "first");
  EXPECT_FALSE(job.has_next());
}

class BacklogTest : public testing::Test {
 protected:
  std::shared_ptr<Job> job(Op op, Bytes offset, Bytes bytes) {
    const Request request{op, &file_, offset, memory_.data(), bytes};
    return std::make_shared<Job>(std::span(&request, 1), 4_KiB, nullptr);
  }
  std::vector<Bytes> taken(Op op, std::size_t n) {
    std::vector<Bytes> offsets;
    for (; n > 0 && backlog_.has(op); --n) offsets.push_back(backlog_.take(op).rest.offset);
    return offsets;
  }

  test::TempFolder folder_;
  File file_ = File::open(folder_ / "file", Access::kCreateNew, Caching::kPageCache);
  Buffer memory_{512_KiB};
  Backlog backlog_;
};

TEST_F(BacklogTest, TheOneWithTheLeastLeftComesFirst) {
  backlog_.push(job(Op::kWrite, 0, 5 * 4_KiB));
  EXPECT_THAT(taken(Op::kWrite, 2), testing::ElementsAre(0U, 4_KiB));
  backlog_.push(job(Op::kWrite, 1_MiB, 4 * 4_KiB));  // as long as the first was, longer than it is
  backlog_.push(job(Op::kWrite, 2_MiB, 2 * 4_KiB));
  EXPECT_THAT(taken(Op::kWrite, 199),
              testing::ElementsAre(2_MiB, 2_MiB + 4_KiB, 8_KiB, 12_KiB, 16_KiB, 1_MiB,
                                   1_MiB + 4_KiB, 1_MiB + 8_KiB, 1_MiB + 12_KiB));
  EXPECT_TRUE(backlog_.empty());
}

/// Otherwise all of them end late and together.
TEST_F(BacklogTest, OfTwoAlikeTheFirstComesFirst) {
  for (const Bytes at : {0_MiB, 1_MiB, 2_MiB}) backlog_.push(job(Op::kRead, at, 8_KiB));
  EXPECT_THAT(taken(Op::kRead, 199),
              testing::ElementsAre(0U, 4_KiB, 1_MiB, 1_MiB + 4_KiB, 2_MiB, 2_MiB + 4_KiB));
}

/// Of a job of several requests all that is left counts.
TEST_F(BacklogTest, WhatIsLeftIsThatOfAllRequests) {
  const std::vector<Request> three(3, Request{Op::kRead, &file_, 1_MiB, memory_.data(), 4_KiB});
  backlog_.push(std::make_shared<Job>(three, 4_KiB, nullptr));
  backlog_.push(job(Op::kRead, 2_MiB, 8_KiB));
  EXPECT_THAT(taken(Op::kRead, 1), testing::ElementsAre(2_MiB));
}

TEST_F(BacklogTest, ReadsAndWritesAreApart) {
  backlog_.push(job(Op::kWrite, 0, 16_KiB));
  backlog_.push(job(Op::kRead, 1_MiB, 8_KiB));
  EXPECT_THAT(taken(Op::kRead, 9), testing::ElementsAre(1_MiB, 1_MiB + 4_KiB));
  EXPECT_FALSE(backlog_.has(Op::kRead));
  EXPECT_FALSE(backlog_.empty());
  EXPECT_EQ(taken(Op::kWrite, 9).size(), 4U);
}

TEST_F(BacklogTest, AJobThatFailedHasNoMorePieces) {
  const auto failed = job(Op::kRead, 0, 64_KiB);
  backlog_.push(failed);
  taken(Op::kRead, 1);
  backlog_.push(job(Op::kRead, 1_MiB, 64_KiB));
  failed->end(std::make_exception_ptr(Error(Errc::kIo, "gone")));
  const std::vector<Bytes> left = taken(Op::kRead, 199);
  EXPECT_EQ(left.size(), 16U);
  EXPECT_THAT(left, testing::Each(testing::Ge(1_MiB)));
}

TEST_F(BacklogTest, WhatIsAbandonedFails) {
  const auto lost = job(Op::kRead, 0, 64_KiB);
  const Ticket ticket = lost->ticket();
  backlog_.push(lost);
  backlog_.abandon(std::make_exception_ptr(Error(Errc::kIo, "lost")));
  EXPECT_STREQ(error_of(ticket).what(), "lost");
  EXPECT_TRUE(backlog_.empty());
}

}  // namespace
}  // namespace sluice::nvme
