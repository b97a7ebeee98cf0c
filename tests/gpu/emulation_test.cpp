// The kernels of a device, thread by thread on the host: the same functions, the same launches.
#include <gtest/gtest.h>

#include <array>

#include "gpu/kernel_calls.h"
#include "tests/gpu/arithmetic_calls.h"
#include "tests/support/errors.h"

namespace sluice::gpu {
namespace {

using cpu_adam::Optimizer;

/// Whole blocks of threads, the last thread first: none may count on one before it.
struct Loop {
  static constexpr std::size_t kBlock = 64;

  template <class Kernel>
  void each(const Kernel& kernel, std::size_t threads) const {
    for (std::size_t t = round_up(threads, kBlock); t-- != 0;) kernel(t);
  }

  template <class Kernel>
  void grains(const Kernel& kernel, std::size_t threads) const {
    for (std::size_t block = round_up(threads, kBlock); block != 0; block -= kBlock) {
      const std::size_t first = block - kBlock;
      std::array<double, kBlock> lanes{};
      for (std::size_t t = kBlock; t-- != 0;) lanes[t] = kernel.lane(first + t);
      for (std::size_t t = kBlock; t-- != 0;) {
        const std::size_t of_grain = t / kernels::Lanes::kCount * kernels::Lanes::kCount;
        kernel.fold(first + t, lanes.data() + of_grain);
      }
    }
  }
};

using Emulated = KernelCalls<Loop>;

TEST(Kernels, GiveTheBitsOfTheOptimizer) {
  const Optimizer optimizer({.threads = 1, .stores = cpu_adam::Stores::kCached});
  const Emulated emulated{Loop()};
  const auto wanted = calls<Optimizer>();
  const auto emulations = calls<Emulated>();
  for (const Lie& lie : lies()) {
    const Sample sample(lie, static_cast<unsigned>(lie.count));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      SCOPED_TRACE(testing::Message() << wanted[i].name << ", " << lie.count << " elements, offset "
                                      << lie.offset << ", moved " << lie.moved);
      Sample want = sample;
      Sample got = sample;
      wanted[i].make(optimizer, want.operands());
      emulations[i].make(emulated, got.operands());
      ASSERT_TRUE(got.seen() == want.seen());
    }
  }
}

TEST(Kernels, RefuseWhatTheOptimizerRefusesInItsWords) {
  const Optimizer optimizer({.threads = 1, .stores = cpu_adam::Stores::kCached});
  const auto wanted = wrong_calls<Optimizer>();
  const auto emulations = wrong_calls<Emulated>();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(wanted[i].name);
    Sample sample({.count = 5}, 1);
    const std::vector<std::byte> before = sample.seen();
    const Error want = test::error_of([&] { wanted[i].make(optimizer, sample.operands()); });
    const Error got =
        test::error_of([&] { emulations[i].make(Emulated(Loop()), sample.operands()); });
    EXPECT_EQ(got.code, want.code);
    EXPECT_STREQ(got.what(), want.what());
    EXPECT_TRUE(sample.seen() == before);
  }
}

}  // namespace
}  // namespace sluice::gpu
