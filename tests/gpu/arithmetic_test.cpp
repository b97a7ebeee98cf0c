#include "gpu/arithmetic.h"

#include <gtest/gtest.h>

#include "gpu/memory.h"
#include "gpu/stream.h"
#include "tests/gpu/arithmetic_calls.h"
#include "tests/support/errors.h"

namespace sluice::gpu {
namespace {

using cpu_adam::Optimizer;

/// One device, and the arithmetic on it beside the optimizer's own.
class ArithmeticOnDevice : public testing::Test {
 protected:
  /// Makes the call on a copy of the sample that lies on the device, and brings that back.
  Event call(Sample& sample, const Lie& lie, const Call<Arithmetic>& what) {
    block_ = heap_.allocate(sample.size());
    const Operands there(block_.data(), lie);
    stream_.copy(block_.data(), sample.data(), sample.size());
    const Event done = stream_.run([&] { what.make(arithmetic_, there); });
    stream_.copy(sample.data(), block_.data(), sample.size()).ticket().wait_error();
    return done;
  }

  Optimizer host_{{.threads = 2, .stores = cpu_adam::Stores::kCached}};
  Arithmetic arithmetic_{host_};
  DeviceHeap heap_{16_MiB, Reach::kDevice};
  DeviceBlock block_;
  Stream stream_{"compute"};
};

TEST_F(ArithmeticOnDevice, GivesTheBitsOfTheOptimizer) {
  const auto here = calls<Optimizer>();
  const auto there = calls<Arithmetic>();
  for (const Lie& lie : lies()) {
    for (std::size_t i = 0; i < here.size(); ++i) {
      SCOPED_TRACE(testing::Message() << here[i].name << ", " << lie.count << " elements, offset "
                                      << lie.offset << ", moved " << lie.moved);
      Sample want(lie, static_cast<unsigned>(i));
      Sample got = want;
      here[i].make(host_, want.operands());
      call(got, lie, there[i]).ticket().wait();
      ASSERT_TRUE(got.seen() == want.seen());
    }
  }
}

TEST_F(ArithmeticOnDevice, RefusesWhatTheOptimizerRefusesInItsWordsAndWritesNothing) {
  const auto here = wrong_calls<Optimizer>();
  const auto there = wrong_calls<Arithmetic>();
  const Lie lie{.count = 5};
  for (std::size_t i = 0; i < here.size(); ++i) {
    SCOPED_TRACE(here[i].name);
    Sample sample(lie, 1);
    const std::vector<std::byte> before = sample.seen();
    const Error want = test::error_of([&] { here[i].make(host_, sample.operands()); });
    block_ = heap_.allocate(sample.size());
    const Operands operands(block_.data(), lie);
    Stream stream("compute");  // each error ends its stream
    stream.copy(block_.data(), sample.data(), sample.size());
    const Event done = stream.run([&] { there[i].make(arithmetic_, operands); });
    const Error got = test::error_of(done.ticket());
    EXPECT_EQ(got.code, want.code);
    EXPECT_STREQ(got.what(), want.what());
    stream_.copy(sample.data(), block_.data(), sample.size()).ticket().wait();
    EXPECT_TRUE(sample.seen() == before);
  }
}

TEST_F(ArithmeticOnDevice, FillsTheBytesOfTheSpanAndNoOthers) {
  for (const std::size_t count : {0U, 1U, 17U, 4096U}) {
    const Lie lie{.count = count};
    Sample want(lie, 2);
    Sample got = want;
    const auto fill = [](const Operands& o, const auto& with) {
      with(std::as_writable_bytes(o.m), std::byte{0});
      with(std::as_writable_bytes(o.copy_bf16), std::byte{0x7f});
    };
    fill(want.operands(), [](auto bytes, std::byte value) { std::ranges::fill(bytes, value); });
    block_ = heap_.allocate(got.size());
    const Operands there(block_.data(), lie);
    stream_.copy(block_.data(), got.data(), got.size());
    stream_.run(
        [&] { fill(there, [&](auto bytes, std::byte value) { arithmetic_.fill(bytes, value); }); });
    stream_.copy(got.data(), block_.data(), got.size()).ticket().wait();
    EXPECT_TRUE(got.seen() == want.seen()) << count;
  }
}

}  // namespace
}  // namespace sluice::gpu
