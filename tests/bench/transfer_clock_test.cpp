#include "engine/bench/transfer_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "nvme/aligned.h"

namespace sluice::bench {
namespace {

constexpr Bytes kBytes = 64_KiB;

class TransferClockTest : public testing::Test {
 protected:
  nvme::Request piece(nvme::Op op, Bytes at) {
    const nvme::AlignedBytes& memory = op == nvme::Op::kRead ? read_ : written_;
    return {op, nullptr, at, memory.get() + at, kAlignment};
  }

  const nvme::AlignedBytes read_ = nvme::allocate_aligned(kBytes);
  const nvme::AlignedBytes written_ = nvme::allocate_aligned(kBytes);
  TransferClock clock_{{read_.get(), kBytes}, {written_.get(), kBytes}};
};

TEST_F(TransferClockTest, CountsWhatCameBackOfEachKind) {
  for (const Bytes at : {Bytes{0}, kAlignment}) {
    EXPECT_EQ(clock_.ask(piece(nvme::Op::kRead, at)), kAlignment);
  }
  clock_.ask(piece(nvme::Op::kWrite, 0));
  EXPECT_EQ(clock_.answer(piece(nvme::Op::kRead, 0), 4096), 4096);
  EXPECT_EQ(clock_.answer(piece(nvme::Op::kRead, kAlignment), -5), -5);
  EXPECT_EQ(clock_.answer(piece(nvme::Op::kWrite, 0), 512), 512);
  EXPECT_EQ(clock_.moved(nvme::Op::kRead), 4096U);
  EXPECT_EQ(clock_.moved(nvme::Op::kWrite), 512U);
}

TEST_F(TransferClockTest, LatencyIsFromTheQuestionToTheAnswer) {
  const Nanos begin = now_ns();
  clock_.ask(piece(nvme::Op::kRead, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  clock_.answer(piece(nvme::Op::kRead, 0), 4096);
  const double all_s = to_seconds(now_ns() - begin);
  const Latency latency = clock_.latency(nvme::Op::kRead);
  EXPECT_GE(latency.p50_s, 5e-3);
  EXPECT_LE(latency.p50_s, all_s);
  EXPECT_EQ(latency.p50_s, latency.p999_s);
  EXPECT_EQ(clock_.latency(nvme::Op::kWrite).p50_s, 0);
}

TEST_F(TransferClockTest, PercentilesAreInOrder) {
  for (int i = 0; i < 4; ++i) {
    clock_.ask(piece(nvme::Op::kRead, 0));
    if (i == 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    clock_.answer(piece(nvme::Op::kRead, 0), 4096);
  }
  const Latency latency = clock_.latency(nvme::Op::kRead);
  EXPECT_LT(latency.p50_s, 20e-3);
  EXPECT_GE(latency.p99_s, 20e-3);
  EXPECT_EQ(latency.p99_s, latency.p999_s);
}

TEST_F(TransferClockTest, OnlyWhatBeginsAndEndsInBetweenHasALatency) {
  clock_.ask(piece(nvme::Op::kRead, 0));
  clock_.answer(piece(nvme::Op::kRead, 0), 4096);
  clock_.ask(piece(nvme::Op::kRead, kAlignment));
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  clock_.begin();
  clock_.answer(piece(nvme::Op::kRead, kAlignment), 4096);
  clock_.end();
  clock_.ask(piece(nvme::Op::kRead, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  clock_.answer(piece(nvme::Op::kRead, 0), 4096);
  EXPECT_EQ(clock_.latency(nvme::Op::kRead).p50_s, 0);
  EXPECT_EQ(clock_.moved(nvme::Op::kRead), 3 * 4096U);
}

}  // namespace
}  // namespace sluice::bench
