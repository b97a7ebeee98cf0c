/// What every IoQueue must do when a transfer goes wrong. Backends as in io_queue_conformance.h.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/nvme/io_queue_conformance.h"
#include "tests/support/faulty_queue.h"

namespace sluice::test {

template <class Backend>
class IoQueueUnderFaults : public IoQueueConformance<Backend> {};

/// Counts pieces between question and answer, and dawdles so that they pile up.
class CountingSeam final : public KernelSeam {
 public:
  Bytes ask(const Request& piece) override {
    const unsigned now = ++in_flight_;
    unsigned most = most_;
    while (now > most && !most_.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    return piece.bytes;
  }
  std::int64_t answer(const Request&, std::int64_t result) override {
    --in_flight_;
    return result;
  }
  unsigned most() const { return most_; }

 private:
  std::atomic<unsigned> in_flight_{0};
  std::atomic<unsigned> most_{0};
};

TYPED_TEST_SUITE_P(IoQueueUnderFaults);

TYPED_TEST_P(IoQueueUnderFaults, AShortTransferIsCompletedNotReported) {
  Faults faults;
  faults.short_transfers = 0.7;
  const auto seam = std::make_shared<FaultySeam>(faults);
  const auto queue = this->make(seam);
  const Buffer out = Buffer::random(1_MiB, 3);
  const Buffer in(1_MiB);
  queue->submit(this->request(Op::kWrite, 0, out)).wait();
  queue->submit(this->request(Op::kRead, 0, in)).wait();
  EXPECT_EQ(out, in);
  EXPECT_GT(seam->counts().shorts, 10U);
}

TYPED_TEST_P(IoQueueUnderFaults, AnInterruptedTransferIsRepeated) {
  Faults faults;
  faults.interrupts = 0.5;
  const auto seam = std::make_shared<FaultySeam>(faults);
  const auto queue = this->make(seam);
  const Buffer out = Buffer::random(1_MiB, 4);
  const Buffer in(1_MiB);
  queue->submit(this->request(Op::kWrite, 0, out)).wait();
  queue->submit(this->request(Op::kRead, 0, in)).wait();
  EXPECT_EQ(out, in);
  EXPECT_GT(seam->counts().interrupts, 10U);
}

TYPED_TEST_P(IoQueueUnderFaults, AnErrorNamesErrnoFileOffsetAndLength) {
  const auto seam = std::make_shared<FaultySeam>(Faults{});
  const auto queue = this->make(seam);
  const Buffer memory(4_KiB);
  const Request bad = this->request(Op::kWrite, 24_KiB, memory);
  seam->curse(bad, -EIO);
  const Error error = error_of(queue->submit(bad));
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_THAT(error.what(), HasSubstr("write of 4096 bytes at offset 24576"));
  EXPECT_THAT(error.what(), HasSubstr("errno 5"));
  EXPECT_THAT(error.what(), HasSubstr(this->folder_ / "a"));
}

TYPED_TEST_P(IoQueueUnderFaults, AFailedRequestLeavesTheOthersAlone) {
  const auto seam = std::make_shared<FaultySeam>(Faults{});
  const auto queue = this->make(seam);
  std::vector<Buffer> memory;
  std::vector<Ticket> tickets;
  for (unsigned i = 0; i < 20; ++i) memory.push_back(Buffer::random(256_KiB, i));
  seam->curse(this->request(Op::kWrite, 0, memory[7]), -ENOSPC);
  for (unsigned i = 0; i < 20; ++i) {
    tickets.push_back(queue->submit(this->request(Op::kWrite, i * 256_KiB, memory[i])));
  }
  for (unsigned i = 0; i < 20; ++i) EXPECT_EQ(tickets[i].wait_error() != nullptr, i == 7) << i;
}

TYPED_TEST_P(IoQueueUnderFaults, AnErrorIsReportedOnlyWhenNothingIsInFlight) {
  // The first piece fails at once; the counter must be back at zero when the ticket says so.
  struct Seam final : KernelSeam {
    std::atomic<int> in_flight{0};
    std::atomic<bool> failed{false};
    Bytes ask(const Request& piece) override {
      ++in_flight;
      return piece.bytes;
    }
    std::int64_t answer(const Request&, std::int64_t result) override {
      const bool first = !failed.exchange(true);
      if (!first) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      --in_flight;
      return first ? -EIO : result;
    }
  };
  const auto seam = std::make_shared<Seam>();
  const auto queue = this->make(seam);
  const Buffer memory(4_MiB);
  const Ticket ticket = queue->submit(this->request(Op::kRead, 0, memory));
  EXPECT_NE(ticket.wait_error(), nullptr);
  EXPECT_EQ(seam->in_flight, 0);
}

TYPED_TEST_P(IoQueueUnderFaults, NoMoreThanTheDepthIsInFlight) {
  const auto seam = std::make_shared<CountingSeam>();
  const auto queue = this->make(seam);
  const Buffer memory(2_MiB);
  const Ticket first = queue->submit(this->request(Op::kWrite, 0, memory));
  const Ticket second = queue->submit(this->request(Op::kWrite, 2_MiB, memory));
  first.wait();
  second.wait();
  EXPECT_LE(seam->most(), this->options().queue_depth);
  EXPECT_GT(seam->most(), 1U);
}

/// The pieces of one request never end.
class NeverSeam final : public KernelSeam {
 public:
  explicit NeverSeam(const Request& request) : data_(request.data), bytes_(request.bytes) {}
  Bytes ask(const Request& piece) override { return piece.bytes; }
  std::int64_t answer(const Request& piece, std::int64_t result) override {
    return piece.data >= data_ && piece.data < data_ + bytes_ ? kNever : result;
  }

 private:
  const std::byte* data_;
  Bytes bytes_;
};

TYPED_TEST_P(IoQueueUnderFaults, WritesThatNeverEndLetReadsPassAndFailWhenTheTimeIsOver) {
  Options options = this->options();
  options.timeout = std::chrono::seconds(2);
  const Buffer memory(16 * options.block_size), other(64_KiB);  // twice the depth
  const Request stuck = this->request(Op::kWrite, 1_MiB, memory);
  const auto queue = TypeParam::make(options, std::make_shared<NeverSeam>(stuck));
  const Ticket never = queue->submit(stuck);
  queue->submit(this->request(Op::kRead, 0, other)).wait();
  EXPECT_FALSE(never.done());
  const Error error = error_of(never);
  EXPECT_EQ(error.code, Errc::kWatchdog);
  EXPECT_THAT(error.what(), HasSubstr(this->folder_ / "a: write of 65536 bytes at offset "));
  EXPECT_THAT(error.what(), HasSubstr("has not come back for 2 s, of 8 in flight"));
  EXPECT_THAT(error.what(), HasSubstr("aio.timeout"));
  EXPECT_EQ(error_of([&] { queue->submit(this->request(Op::kRead, 0, other)); }).code,
            Errc::kWatchdog);
}

TYPED_TEST_P(IoQueueUnderFaults, AnErrorOfTheKernelReachesTheTicket) {
  const auto queue = this->make();
  const File closed_to_writes = File::open(this->folder_ / "a", Access::kRead, TypeParam::kCaching);
  const Buffer memory(256_KiB);
  const Error error =
      error_of(queue->submit({Op::kWrite, &closed_to_writes, 0, memory.data(), memory.size()}));
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_THAT(error.what(), HasSubstr("errno 9"));
}

TYPED_TEST_P(IoQueueUnderFaults, AReadPastTheEndFails) {
  const auto queue = this->make();
  const Buffer memory(256_KiB);
  const Error error = error_of(queue->submit(this->request(Op::kRead, 16_MiB - 128_KiB, memory)));
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_THAT(error.what(), HasSubstr("the file ends here"));
}

TYPED_TEST_P(IoQueueUnderFaults, AReadThatMeetsARaggedEndFails) {
  const auto queue = this->make();
  std::filesystem::resize_file(this->folder_ / "a", 64_KiB + 100);
  const Buffer memory(128_KiB);
  const Error error = error_of(queue->submit(this->request(Op::kRead, 0, memory)));
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_THAT(error.what(), HasSubstr("offset 65"));
}

REGISTER_TYPED_TEST_SUITE_P(IoQueueUnderFaults, AnErrorOfTheKernelReachesTheTicket,
                            AReadPastTheEndFails, AReadThatMeetsARaggedEndFails,
                            AShortTransferIsCompletedNotReported, AnInterruptedTransferIsRepeated,
                            AnErrorNamesErrnoFileOffsetAndLength,
                            AFailedRequestLeavesTheOthersAlone,
                            AnErrorIsReportedOnlyWhenNothingIsInFlight,
                            NoMoreThanTheDepthIsInFlight,
                            WritesThatNeverEndLetReadsPassAndFailWhenTheTimeIsOver);

}  // namespace sluice::test
