// A queue whose kernel keeps the thread that serves it. What a ring answers is tested by
// io_queue_conformance.h and io_queue_faults.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "nvme/ring.h"
#include "tests/nvme/buffer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::test {
namespace {

using nvme::Access;
using nvme::Answer;
using nvme::Caching;
using nvme::EventFd;
using nvme::File;
using nvme::Op;
using nvme::Piece;
using testing::HasSubstr;

/// Where a ring's enter() stays, and what became of it.
class Kernel {
 public:
  void keep_who_enters() {
    const std::lock_guard lock(mutex_);
    keeps_ = true;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    keeps_ = false;
    changed_.notify_all();
  }
  void stay() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !keeps_; });
  }
  void drop_ring() {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
    changed_.notify_all();
  }
  void wait_until_dropped() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return dropped_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool keeps_ = false;
  bool dropped_ = false;
};

class KeptRing final : public nvme::Ring {
 public:
  explicit KeptRing(std::shared_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
  ~KeptRing() override { kernel_->drop_ring(); }

  void prepare(Piece& piece, Bytes bytes) override {
    answer_ = Answer{&piece, static_cast<std::int64_t>(bytes)};
    kernel_->keep_who_enters();
  }
  void enter(std::chrono::milliseconds /*at_most*/) override {
    kernel_->stay();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::optional<Answer> answer() override { return std::exchange(answer_, std::nullopt); }
  std::string describe() const override { return "kept"; }

 private:
  std::shared_ptr<Kernel> kernel_;
  std::optional<Answer> answer_;
};

class RingQueueTest : public testing::Test {
 protected:
  std::unique_ptr<nvme::IoQueue> queue() const {
    nvme::Options options;
    options.timeout = std::chrono::milliseconds(50);
    return nvme::make_ring_queue(
        options, nullptr, [kernel = kernel_](unsigned /*transfers*/, const EventFd& /*wake*/) {
          return std::make_unique<KeptRing>(kernel);
        });
  }

  TempFolder folder_;
  const std::shared_ptr<Kernel> kernel_ = std::make_shared<Kernel>();
};

TEST_F(RingQueueTest, AKernelThatKeepsTheThreadIsNoticedAndLeftBehind) {
  const File file = File::open(folder_ / "a", Access::kCreateNew, Caching::kPageCache);
  {
    const Buffer memory(64_KiB);
    const auto queue = this->queue();
    EXPECT_THAT(queue->describe(), HasSubstr("kept"));
    const Ticket never = queue->submit({Op::kWrite, &file, 4096, memory.data(), memory.size()});
    const Error error = error_of(never);
    EXPECT_EQ(error.code, Errc::kWatchdog);
    EXPECT_THAT(error.what(), HasSubstr(folder_ / "a: write of 65536 bytes at offset 4096"));
    EXPECT_EQ(error_of([&] {
                queue->submit({Op::kWrite, &file, 0, memory.data(), memory.size()});
              }).code,
              Errc::kWatchdog);
  }
  // The queue, its memory and its requests are gone when the kernel gives the thread back.
  kernel_->let_go();
  kernel_->wait_until_dropped();
}

TEST_F(RingQueueTest, AQueueThatCannotBeMadeLeavesNothing) {
  EXPECT_EQ(error_of([] {
              nvme::make_ring_queue({}, nullptr,
                                    [](unsigned, const EventFd&) -> std::unique_ptr<nvme::Ring> {
                                      throw Error(Errc::kEnv, "no");
                                    });
            }).code,
            Errc::kEnv);
}

}  // namespace
}  // namespace sluice::test
