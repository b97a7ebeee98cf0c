/// What a driver does when its own bookkeeping fails, outside the handlers: here an allocation.
/// Every allocation of a run is failed in turn, each in a run of its own.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "engine/executor/driver.h"
#include "tests/executor/failed_allocation.h"
#include "tests/executor/job_thread.h"

namespace sluice::executor {
namespace {

using prefetch::BufferId;
using prefetch::LaneId;
using testing::FailedAllocation;
using testing::JobThread;

constexpr LaneId kHost = 0;

/// Work that takes a moment, on streams of its own. It is the driver that fails.
class ShortWork final : public Handler {
 public:
  Ticket start(const OpContext& context) override {
    if (context.op.lane == kHost) return {};
    Ticket ticket = streams_[context.op.lane - 1].run([this] {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      ++ended_;
    });
    ++begun_;
    return ticket;
  }
  bool in_flight() const { return ended_ < begun_; }

 private:
  std::atomic<int> begun_{0}, ended_{0};
  std::array<JobThread, 2> streams_{JobThread{JobThread::AfterFailure::kSkip},
                                    JobThread{JobThread::AfterFailure::kSkip}};
};

/// Two streams that wait for each other, a host lane, memory that is handed on.
class NoMemory : public ::testing::Test {
 protected:
  NoMemory() {
    auto residents = std::make_shared<prefetch::Residents>();
    const BufferId weights = residents->buffer({});
    residents->seal();
    resources_.residents = residents;
    resources_.pools = {{"pool", prefetch::Tier::kCpu, 4_KiB, 2}};
    resources_.lanes = {{"host", 2, prefetch::Issue::kOldestReady},
                        {"stream", 1, prefetch::Issue::kFifo},
                        {"a stream with a long name", 1, prefetch::Issue::kFifo}};
    auto program = std::make_shared<prefetch::Program>("test", residents);
    const auto op = [&](LaneId lane, std::vector<BufferId> reads, std::vector<BufferId> writes) {
      program->op({{1, "work"}, lane, {}, std::move(reads), std::move(writes), {}});
    };
    for (int i = 0; i < 2; ++i) {
      const BufferId x = program->buffer({0, 4_KiB, prefetch::MemoryTag::kParam});
      op(kHost, {}, {x});
      op(1, {x}, {weights});
      op(2, {x, weights}, {});
      op(kHost, {x, weights}, {weights});
    }
    program->seal();
    program_ = program;
  }

  void run_two(Driver& driver) const {
    driver.append(program_, 1);
    driver.append(program_, 2);
    EXPECT_EQ(driver.wait(0).size(), 2U);
  }

  Resources resources_;
  std::shared_ptr<const prefetch::Program> program_;
};

TEST_F(NoMemory, OnAnyThreadOfTheOverlappedDriverEndsTheRunThroughWait) {
  std::int64_t failed = 0;
  for (bool happened = true; happened; ++failed) {
    const FailedAllocation fault(failed, FailedAllocation::On::kOtherThreads);
    ShortWork handler;
    const auto driver = overlapped(resources_, handler);
    try {
      run_two(*driver);
      happened = fault.happened();
      EXPECT_FALSE(happened) << "the run went on after allocation " << failed << " failed";
    } catch (const std::bad_alloc&) {
      EXPECT_FALSE(handler.in_flight());
      EXPECT_THROW(driver->wait(0), std::bad_alloc);
    }
  }
  EXPECT_GT(failed, 16) << "there is one for the slots of each op";
}

TEST_F(NoMemory, InTheSerialDriverEndsTheRunThroughAppendOrWait) {
  std::int64_t failed = 0;
  for (bool happened = true; happened; ++failed) {
    ShortWork handler;
    const auto driver = serial(resources_, handler);
    const FailedAllocation fault(failed, FailedAllocation::On::kThisThread);
    try {
      run_two(*driver);
      happened = fault.happened();
      EXPECT_FALSE(happened) << "the run went on after allocation " << failed << " failed";
    } catch (const std::bad_alloc&) {
    }
  }
  EXPECT_GT(failed, 16);
}

}  // namespace
}  // namespace sluice::executor
