#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>

#include "cpu_adam/kernel.h"
#include "cpu_adam/store_probe.h"
#include "engine/base/machine.h"
#include "tests/cpu_adam/oracle.h"
#include "tests/cpu_adam/problem.h"

namespace sluice::cpu_adam {
namespace {

constexpr std::chrono::milliseconds kNap{1};

template <Write kSlow>
void sleep_on(const UpdateArgs& a) noexcept {
  if (a.write == kSlow) std::this_thread::sleep_for(kNap);
}

/// A sleep is never shorter than asked, so these bounds hold however busy the machine is.
TEST(StoreProbe, TimesEachKindOfStoresByItself) {
  const double nap_ns = std::chrono::duration<double, std::nano>(kNap).count();
  const double nap_per_parameter = nap_ns / static_cast<double>(probed_parameters(last_cache()));
  const Workers one(1);
  const Kernels streaming{.update = &sleep_on<Write::kStreaming>};
  EXPECT_GE(probe_stores(streaming, one).streaming_ns, nap_per_parameter);
  const Kernels cached{.update = &sleep_on<Write::kCached>};
  EXPECT_GE(probe_stores(cached, one).cached_ns, nap_per_parameter);
  for (const Kernels& kernels : {streaming, cached}) {
    const StoreTimes times = probe_stores(kernels, one);
    EXPECT_GT(times.streaming_ns, 0.0);
    EXPECT_GT(times.cached_ns, 0.0);
    EXPECT_LT(times.streaming_ns, std::numeric_limits<double>::max());
    EXPECT_LT(times.cached_ns, std::numeric_limits<double>::max());
  }
}

/// 16 bytes of each.
TEST(StoreProbe, WorksOnTwiceWhatCachesHold) {
  EXPECT_EQ(probed_parameters(64_MiB), std::size_t{8} << 20);
  EXPECT_EQ(probed_parameters(0), std::size_t{2} << 20) << "not known";
  EXPECT_EQ(probed_parameters(1_GiB), std::size_t{16} << 20) << "as far as that takes a moment";
}

TEST(Stores, AreTheOnesThatTheProbeFoundFaster) {
  const Optimizer adam({});
  const std::string text = adam.describe();
  const std::size_t probe = std::min(text.find("probe: "), text.size());
  double chosen = 0, other = 0;
  if (std::sscanf(text.c_str() + probe, "probe: %lf against %lf ns", &chosen, &other) != 2) {
    EXPECT_EQ(adam.stores(), Stores::kCached) << text;  // without streaming stores nothing to try
    return;
  }
  EXPECT_LE(chosen, other) << text;
}

TEST(Stores, AreCachedWhereTheInstructionSetHasNoOthers) {
  const Optimizer adam({.threads = 1, .isa = Isa::kScalar, .stores = Stores::kStreaming});
  EXPECT_EQ(adam.stores(), Stores::kCached);
}

class StoresIsa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Available, StoresIsa, testing::ValuesIn(available_isas()), isa_name);

/// One output after the other is moved off its 64-byte line, by an element and by half a line.
TEST_P(StoresIsa, StreamOnlyWhenEveryOutputIsOnALine) {
  constexpr std::size_t kCount = 200;
  const Optimizer streaming({.threads = 1, .isa = GetParam(), .stores = Stores::kStreaming});
  const Hyper hyper = some_hyper(Mode::kAdamW);
  for (std::size_t moved = 0; moved < 4; ++moved) {
    for (const std::size_t by : {1U, 8U, 16U}) {
      SCOPED_TRACE(testing::Message() << "output " << moved << " by " << by);
      std::array<std::size_t, 4> first{};
      first[moved] = by;
      const Problem before(kCount + 16, 0, 6);
      for (const DType copy : kTypes) {
        const Problem after = before;
        const auto part = [&](auto span, std::size_t output) {
          return span.subspan(first[output], kCount);
        };
        Published published = part(after.published32.span(), 3);
        if (copy == DType::kBf16) published = part(after.published_bf16.span(), 3);
        if (copy == DType::kF16) published = part(after.published_fp16.span(), 3);
        const std::span<const float> gradient = after.gradient32.span().first(kCount);
        streaming.update(
            hyper, {part(after.master.span(), 0), part(after.m.span(), 1), part(after.v.span(), 2)},
            gradient, published);
        for (std::size_t i = 0; i < kCount; ++i) {
          const oracle::Element want =
              oracle::update(hyper,
                             {part(before.master.span(), 0)[i], part(before.m.span(), 1)[i],
                              part(before.v.span(), 2)[i]},
                             gradient[i]);
          ASSERT_EQ(part(after.master.span(), 0)[i], want.master) << i;
          ASSERT_EQ(part(after.m.span(), 1)[i], want.m) << i;
          ASSERT_EQ(part(after.v.span(), 2)[i], want.v) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cpu_adam
