#include "engine/bench/drive_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::bench {
namespace {

using nvme::Engine;
using nvme::Op;
using testing::HasSubstr;

constexpr Bytes kLine = 4_MiB;
constexpr Bytes kRequest = 256_KiB;
const Box kBox{0.05, 4_GiB};

/// The drive does what it should not: reads of one transfer are changed, or fail.
class BadTarget final : public Target {
 public:
  explicit BadTarget(std::unique_ptr<Target> good) : good_(std::move(good)) {}
  Bytes bytes() const override { return good_->bytes(); }
  void use(const nvme::Options& options, const std::shared_ptr<nvme::KernelSeam>& seam,
           const std::vector<std::span<std::byte>>& memory) override {
    good_->use(options, seam, memory);
  }
  Ticket transfer(Op op, Bytes offset, std::span<std::byte> memory) override {
    if (op == Op::kWrite && lose_writes) {
      TicketSource source;
      Ticket ticket = source.ticket();
      source.finish();
      return ticket;
    }
    if (fail_reads && op == Op::kRead) throw Error(Errc::kIo, "the drive is gone");
    return good_->transfer(op, offset, memory);
  }
  std::string name() const override { return good_->name(); }
  std::string describe() const override { return good_->describe(); }

  bool lose_writes = false, fail_reads = false;

 private:
  const std::unique_ptr<Target> good_;
};

class DriveBenchTest : public testing::Test {
 protected:
  DriveBenchTest() {
    auto target = std::make_unique<FolderTarget>(folder_.path(), kLine, nvme::Direct::kAuto);
    file_ = &target->file();
    auto bad = std::make_unique<BadTarget>(std::move(target));
    target_ = bad.get();
    bench_ = std::make_unique<DriveBench>(std::move(bad), kRequest, 3, stop_);
  }

  static Point point(Traffic traffic, Engine engine = Engine::kThreads) {
    return {engine, 64_KiB, 4, traffic};
  }
  void fill() { EXPECT_GT(bench_->fill(point(Traffic::kWrite)), 0); }

  /// As a drive does that cannot be trusted.
  void flip_a_bit(Bytes at) {
    const nvme::AlignedBytes block = nvme::allocate_aligned(kAlignment);
    const auto begin = static_cast<off_t>(at / kAlignment * kAlignment);
    ASSERT_EQ(::pread(file_->fd(), block.get(), kAlignment, begin), ssize_t{kAlignment});
    block[at % kAlignment] ^= std::byte{4};
    ASSERT_EQ(::pwrite(file_->fd(), block.get(), kAlignment, begin), ssize_t{kAlignment});
  }

  const test::TempFolder folder_;
  std::atomic<int> stop_{0};
  const nvme::File* file_ = nullptr;
  BadTarget* target_ = nullptr;
  std::unique_ptr<DriveBench> bench_;
};

TEST_F(DriveBenchTest, MeasuresEachTrafficWithEachEngineAndLeavesNothing) {
  fill();
  for (const Engine engine : {Engine::kIoUring, Engine::kLibaio, Engine::kThreads}) {
    for (const Traffic traffic : {Traffic::kRead, Traffic::kWrite, Traffic::kMixed}) {
      std::optional<Measured> one;
      try {
        one = bench_->measure(point(traffic, engine), kBox);
      } catch (const Error& error) {
        if (error.code != Errc::kEnv) throw;
        continue;  // the machine has no such engine
      }
      ASSERT_TRUE(one);
      const bool reads = traffic != Traffic::kWrite, writes = traffic != Traffic::kRead;
      EXPECT_EQ(one->point, point(traffic, engine));
      EXPECT_EQ(one->read_bytes > 0, reads);
      EXPECT_EQ(one->written_bytes > 0, writes);
      EXPECT_DOUBLE_EQ(one->read_rate, static_cast<double>(one->read_bytes) / one->seconds);
      EXPECT_DOUBLE_EQ(one->write_rate, static_cast<double>(one->written_bytes) / one->seconds);
      EXPECT_EQ(one->read_latency.p50_s > 0, reads);
      EXPECT_EQ(one->write_latency.p50_s > 0, writes);
      EXPECT_GE(one->write_latency.p999_s, one->write_latency.p50_s);
      EXPECT_EQ(one->verified_bytes > 0, reads);
    }
  }
  EXPECT_EQ(bench_->verify(point(Traffic::kRead)), kLine);
  EXPECT_TRUE(folder_.empty());
}

TEST_F(DriveBenchTest, AFlippedBitIsNamedWithFileAndOffset) {
  fill();
  EXPECT_EQ(bench_->verify(point(Traffic::kRead)), kLine);
  constexpr Bytes kAt = 3 * kRequest + 70'000;
  flip_a_bit(kAt);
  test::expect_error(Errc::kIo, {file_->path(), "offset 856432", "dmesg"},
                     [&] { bench_->verify(point(Traffic::kRead)); });
  static_assert(kAt == 856432);
}

TEST_F(DriveBenchTest, EachReadPointLooksAtWhatItRead) {
  fill();
  for (Bytes at = 0; at < kLine; at += kAlignment) flip_a_bit(at + 99);
  test::expect_error(Errc::kIo, {"offset"}, [&] { bench_->measure(point(Traffic::kRead), kBox); });
}

TEST_F(DriveBenchTest, WritesThatAreLostAreNoticed) {
  fill();
  target_->lose_writes = true;
  bench_->fill(point(Traffic::kWrite));
  target_->lose_writes = false;
  test::expect_error(Errc::kIo, {"offset"}, [&] { bench_->verify(point(Traffic::kRead)); });
}

TEST_F(DriveBenchTest, AFailedTransferIsTheErrorOfThePoint) {
  fill();
  target_->fail_reads = true;
  test::expect_error(Errc::kIo, {"the drive is gone"},
                     [&] { bench_->measure(point(Traffic::kMixed), kBox); });
}

TEST_F(DriveBenchTest, WritesNoMoreThanTheBoxAllows) {
  fill();
  EXPECT_EQ(bench_->written(), kLine);
  const auto one = bench_->measure(point(Traffic::kWrite), {60, 3_MiB});
  ASSERT_TRUE(one);
  EXPECT_EQ(bench_->written(), kLine + 3_MiB);
  EXPECT_GT(one->written_bytes, 0U);
  EXPECT_LE(one->written_bytes, 3_MiB);
  const Steady steady = bench_->write_until_flat(point(Traffic::kWrite), 2_MiB, [](double) {});
  EXPECT_FALSE(steady.flat);
  EXPECT_EQ(bench_->written(), kLine + 5_MiB);
  EXPECT_EQ(bench_->verify(point(Traffic::kRead)), kLine);
}

TEST_F(DriveBenchTest, ASignalEndsAPointWithoutAResult) {
  fill();
  stop_ = 15;
  EXPECT_EQ(bench_->measure(point(Traffic::kMixed), {86400, 1024_GiB}), std::nullopt);
  EXPECT_LT(bench_->verify(point(Traffic::kRead)), kLine);
}

TEST(RequestsAtATime, KeepTheDepthFull) {
  for (const unsigned depth : {1U, 4U, 32U, 64U}) {
    const Point point{Engine::kIoUring, 1_MiB, depth, Traffic::kRead};
    const Bytes others = (requests_at_a_time(point, 4_MiB) - 1) * 4_MiB;
    EXPECT_GE(others / 2, point.in_flight());
    EXPECT_GE(requests_at_a_time(point, 4_MiB), 3U);
  }
}

TEST(StripedTarget, HoldsEveryByteOverItsFolders) {
  const test::TempFolder a, b;
  const std::atomic<int> stop{0};
  DriveBench bench(make_striped_target({a.path(), b.path()}, {1, 2}, 8_MiB, nvme::Direct::kAuto),
                   kRequest, 3, stop);
  const Point how{Engine::kThreads, 64_KiB, 4, Traffic::kMixed};
  bench.fill(how);
  ASSERT_TRUE(bench.measure(how, kBox));
  EXPECT_EQ(bench.verify(how), 8_MiB);
  EXPECT_TRUE(a.empty() && b.empty());
}

}  // namespace
}  // namespace sluice::bench
