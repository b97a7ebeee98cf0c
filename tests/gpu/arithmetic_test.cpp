#include "gpu/arithmetic.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/memory.h"
#include "gpu/stream.h"
#include "tests/gpu/arithmetic_calls.h"
#include "tests/gpu/needs_device.h"
#include "tests/support/errors.h"

namespace sluice::gpu {
namespace {

using cpu_adam::Optimizer;

using ArithmeticOnDevice = NeedsDevice;

/// The arithmetic on the device beside the optimizer's own.
struct Places {
  /// Does `work` with a copy of the sample that lies on the device, and brings that back.
  template <class Work>
  Event on_device(Sample& sample, const Lie& lie, Work work) {
    const DeviceBlock block = heap.allocate(sample.size());
    const Operands there(block.data(), lie);
    Stream stream("compute");  // an error ends it
    stream.copy(block.data(), sample.data(), sample.size());
    Event done = stream.run([&] { work(arithmetic, there); });
    done.ticket().wait_error();
    Stream back("back");
    back.copy(sample.data(), block.data(), sample.size()).ticket().wait();
    return done;
  }

  Optimizer optimizer{{.threads = 2, .stores = cpu_adam::Stores::kCached}};
  Arithmetic arithmetic{optimizer};
  DeviceHeap heap{16_MiB, Reach::kDevice};
};

TEST_F(ArithmeticOnDevice, GivesTheBitsOfTheOptimizer) {
  Places places;
  const auto here = calls<Optimizer>();
  const auto there = calls<Arithmetic>();
  for (const Lie& lie : lies()) {
    const Sample sample(lie, static_cast<unsigned>(lie.count));
    for (std::size_t i = 0; i < here.size(); ++i) {
      SCOPED_TRACE(testing::Message() << here[i].name << ", " << lie.count << " elements, offset "
                                      << lie.offset << ", moved " << lie.moved);
      Sample want = sample;
      Sample got = sample;
      here[i].make(places.optimizer, want.operands());
      places.on_device(got, lie, there[i].make).ticket().wait();
      ASSERT_TRUE(got.seen() == want.seen());
    }
  }
}

TEST_F(ArithmeticOnDevice, RefusesWhatTheOptimizerRefusesInItsWordsAndWritesNothing) {
  Places places;
  const auto here = wrong_calls<Optimizer>();
  const auto there = wrong_calls<Arithmetic>();
  const Lie lie{.count = 5};
  for (std::size_t i = 0; i < here.size(); ++i) {
    SCOPED_TRACE(here[i].name);
    Sample sample(lie, 1);
    const std::vector<std::byte> before = sample.seen();
    const Error want = test::error_of([&] { here[i].make(places.optimizer, sample.operands()); });
    const Error got = test::error_of(places.on_device(sample, lie, there[i].make).ticket());
    EXPECT_EQ(got.code, want.code);
    EXPECT_STREQ(got.what(), want.what());
    EXPECT_TRUE(sample.seen() == before);
  }
}

TEST_F(ArithmeticOnDevice, FillsTheBytesOfTheSpanAndNoOthers) {
  Places places;
  for (const std::size_t count : {0U, 1U, 17U, 4096U}) {
    const Lie lie{.count = count};
    Sample want(lie, 2);
    Sample got = want;
    std::ranges::fill(std::as_writable_bytes(want.operands().m), std::byte{0});
    std::ranges::fill(std::as_writable_bytes(want.operands().copy_bf16), std::byte{0x7f});
    const Event done = places.on_device(got, lie, [](const Arithmetic& a, const Operands& o) {
      a.fill(std::as_writable_bytes(o.m), std::byte{0});
      a.fill(std::as_writable_bytes(o.copy_bf16), std::byte{0x7f});
    });
    done.ticket().wait();
    EXPECT_TRUE(got.seen() == want.seen()) << count;
  }
}

}  // namespace
}  // namespace sluice::gpu
