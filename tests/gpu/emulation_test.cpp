// The kernels of a device, thread by thread on the host: the same functions, the same launches.
#include <gtest/gtest.h>

#include "gpu/kernel_calls.h"
#include "tests/gpu/arithmetic_calls.h"
#include "tests/gpu/loop.h"
#include "tests/support/errors.h"

namespace sluice::gpu {
namespace {

using cpu_adam::Optimizer;

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
