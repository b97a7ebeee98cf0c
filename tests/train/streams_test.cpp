#include "engine/train/streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <vector>

#include "engine/base/error.h"

namespace sluice::train {
namespace {

using executor::OpContext;
using prefetch::BufferId;
using prefetch::Issue;
using prefetch::LaneId;

constexpr LaneId kFirst = 0, kSecond = 1;

/// Two streams; the op of index 0 is on the first, and the one of index 1, on the second, reads
/// what it wrote.
class TwoStreams : public ::testing::Test, public executor::Handler {
 protected:
  TwoStreams() {
    residents_->seal();
    streams_.add(kFirst, first_);
    streams_.add(kSecond, second_);
    auto program = std::make_shared<prefetch::Program>("two", residents_);
    const BufferId between = program->buffer({});
    prefetch::Op write, read;
    write.lane = kFirst, write.writes = {between};
    read.lane = kSecond, read.reads = {between};
    program->op(write);
    program->op(read);
    program->seal();
    program_ = std::move(program);
  }

  Ticket start(const OpContext& context) override {
    const bool reader = context.op.lane == kSecond;
    waits_ += context.stream_waits.size();
    Ticket ticket = streams_.run(context, reader ? reads_ : writes_);
    if (reader) reader_enqueued_.count_down();
    return ticket;
  }

  void run() {
    const executor::Resources resources{
        residents_, {}, {{"first", 1, Issue::kFifo}, {"second", 1, Issue::kFifo}}};
    const auto driver = executor::overlapped(resources, *this);
    driver->append(program_, 0);
    driver->wait(0);
  }

  std::function<void()> writes_, reads_;
  std::latch reader_enqueued_{1};
  std::size_t waits_ = 0;

 private:
  std::shared_ptr<prefetch::Residents> residents_ = std::make_shared<prefetch::Residents>();
  std::shared_ptr<const prefetch::Program> program_;
  gpu::Stream first_{"first"}, second_{"second"};
  Streams streams_;
};

TEST_F(TwoStreams, AnOpWaitsOnItsStreamForAnotherStreamsAndTheHostDoesNot) {
  std::atomic<bool> written{false};
  bool seen = false;
  writes_ = [&] {
    reader_enqueued_.wait();  // comes only where enqueuing it waited for nothing
    written = true;
  };
  reads_ = [&] { seen = written; };
  run();
  EXPECT_EQ(waits_, 1U);
  EXPECT_TRUE(seen);
}

TEST_F(TwoStreams, AnErrorReachesTheStreamsThatWaitForIt) {
  writes_ = [&] {
    reader_enqueued_.wait();
    throw Error(Errc::kDevice, "the device refuses");
  };
  bool ran = false;
  reads_ = [&] { ran = true; };
  EXPECT_THROW(run(), Error);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace sluice::train
