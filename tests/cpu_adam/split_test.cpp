#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/base/error.h"
#include "tests/cpu_adam/problem.h"
#include "tests/support/errors.h"

namespace sluice::cpu_adam {
namespace {

class SplitIsa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Available, SplitIsa, testing::ValuesIn(available_isas()), isa_name);

/// A state in halves, and room for what becomes of it.
struct Split {
  Split(std::size_t count, std::size_t offset)
      : low(count, offset), weights(count, offset), m(count, offset), v(count, offset) {}

  SplitState state() const { return {low.span(), weights.span(), m.span(), v.span()}; }
  bool guards_hold() const {
    return low.guards_hold() && weights.guards_hold() && m.guards_hold() && v.guards_hold();
  }

  Placed<std::uint16_t> low;
  Placed<Bf16> weights;
  Placed<float> m, v;
};

/// Weights by the numbers' own conversion, which the kernels do not share.
Split split_of(const Optimizer& adam, State whole, std::size_t offset = 0) {
  Split split(whole.master.size(), offset);
  for (std::size_t i = 0; i < whole.master.size(); ++i) {
    split.weights.span()[i] = to_bf16(whole.master[i]);
  }
  adam.split(split.state(), whole);
  return split;
}

/// Every lower half, beside this upper one.
std::vector<float> masters_with(std::uint32_t upper) {
  std::vector<float> masters(1U << 16);
  for (std::uint32_t low = 0; low < masters.size(); ++low) {
    masters[low] = std::bit_cast<float>(upper << 16 | low);
  }
  return masters;
}

/// Zeros, subnormals, 1 and its neighbours, the largest that are finite (whose weight is infinite
/// where it is rounded up) and quiet NaN, of both signs; even and odd.
constexpr std::array<std::uint32_t, 20> kUppers = {
    0x0000, 0x0001, 0x007f, 0x0080, 0x3f7f, 0x3f80, 0x3f81, 0x7f7e, 0x7f7f, 0x7fc1,
    0x8000, 0x8001, 0x807f, 0x8080, 0xbf7f, 0xbf80, 0xbf81, 0xff7e, 0xff7f, 0xffc2};

TEST_P(SplitIsa, JoinsEveryLowerHalfToWhatItWasOf) {
  const Optimizer adam = optimizer(GetParam());
  for (const std::uint32_t upper : kUppers) {
    SCOPED_TRACE(testing::Message() << std::hex << "upper half " << upper);
    std::vector<float> master = masters_with(upper), m(master.size()), v(master.size());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 7) * 1e-3F;
    const Split split = split_of(adam, {master, m, v});
    for (std::uint32_t i = 0; i < master.size(); ++i) {
      ASSERT_EQ(split.low.span()[i], i);
      ASSERT_EQ(std::fabs(split.v.span()[i]), v[i]);
    }
    std::vector<float> again(master.size()), again_m(again), again_v(again);
    adam.join({again, again_m, again_v}, split.state());
    ASSERT_EQ(bits_of(again), bits_of(master));
    ASSERT_EQ(bits_of(again_v), bits_of(v));
  }
}

TEST_P(SplitIsa, JoinsInfinities) {
  const Optimizer adam = optimizer(GetParam());
  std::vector<float> master(40, std::numeric_limits<float>::infinity()), m(40), v(40), again(40);
  master[39] = -master[39];
  const Split split = split_of(adam, {master, m, v});
  adam.join({again, {}, {}}, split.state());
  EXPECT_EQ(again, master);
}

TEST_P(SplitIsa, NeverTakesTheSignOfANaNForAMark) {
  const float nan = -std::numeric_limits<float>::quiet_NaN();
  std::vector<float> master = {1.0F, std::bit_cast<float>(0x3f818000U)}, m(2), v = {nan, nan};
  const Optimizer adam = optimizer(GetParam());
  const Split split = split_of(adam, {master, m, v});
  std::vector<float> again(2);
  adam.join({again, {}, {}}, split.state());
  EXPECT_EQ(bits_of(again), bits_of(master));
}

TEST_P(SplitIsa, KeepsBothMomentsForEveryLengthAndAlignment) {
  const Optimizer adam = optimizer(GetParam());
  for (std::size_t count = 0; count <= 49; ++count) {
    for (const std::size_t offset : {0U, 1U, 7U}) {
      const Problem p(count, offset, static_cast<unsigned>(100 * count + offset));
      const Split split = split_of(adam, p.state(), offset);
      ASSERT_TRUE(split.guards_hold());
      const Problem again(count, offset, 1);
      adam.join(again.state(), split.state());
      ASSERT_TRUE(again.guards_hold());
      ASSERT_EQ(bits_of(again.master.span()), bits_of(p.master.span())) << count;
      ASSERT_EQ(bits_of(again.m.span()), bits_of(p.m.span())) << count;
      ASSERT_EQ(bits_of(again.v.span()), bits_of(p.v.span())) << count;
    }
  }
}

/// `in_place`: the weights that are read are those that are published.
void expect_bits_of_whole_state(const Optimizer& adam, const Problem& before, std::size_t offset,
                                DType type, int terms, bool in_place) {
  const Problem want = before;
  const Hyper hyper = some_hyper(Mode::kAdamW);
  adam.update(hyper, want.state(), gradient_of(want, type, terms), want.published_bf16.span());
  const Split split = split_of(adam, before.state(), offset);
  const Placed<Bf16>& published = in_place ? split.weights : before.published_bf16;
  const std::vector<std::uint16_t> old = bits_of(std::span<const Bf16>(split.weights.span()));
  adam.update(hyper, split.state(), gradient_of(before, type, terms), published.span());
  ASSERT_TRUE(split.guards_hold() && published.guards_hold());
  ASSERT_EQ(bits_of(std::span<const Bf16>(published.span())),
            bits_of(std::span<const Bf16>(want.published_bf16.span())));
  if (!in_place) {
    ASSERT_EQ(bits_of(std::span<const Bf16>(split.weights.span())), old);
  }
  const Problem got(before.master.span().size(), offset, 1);
  adam.join(got.state(), {split.low.span(), published.span(), split.m.span(), split.v.span()});
  ASSERT_EQ(bits_of(got.master.span()), bits_of(want.master.span()));
  ASSERT_EQ(bits_of(got.m.span()), bits_of(want.m.span()));
  ASSERT_EQ(bits_of(got.v.span()), bits_of(want.v.span()));
}

TEST_P(SplitIsa, UpdatesToTheBitsOfAWholeStateForEveryLengthAlignmentAndType) {
  for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
    const Optimizer adam = optimizer(GetParam(), 1, stores);
    for (std::size_t count = 0; count <= 49; ++count) {
      for (const std::size_t offset : {0U, 1U, 7U}) {
        const Problem before(count, offset, static_cast<unsigned>(100 * count + offset));
        for (const DType type : kTypes) {
          for (const int terms : {1, 2}) {
            SCOPED_TRACE(testing::Message() << "count " << count << " offset " << offset);
            expect_bits_of_whole_state(adam, before, offset, type, terms, true);
            expect_bits_of_whole_state(adam, before, offset, type, terms, false);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(SplitIsa, UpdatesToTheBitsOfAWholeStateOverManyGrainsAndEveryThreadCount) {
  const Problem before(9 * kGrainElems + 37, 0, 5);
  for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
    for (unsigned threads = 1; threads <= 4; ++threads) {
      const Optimizer adam = optimizer(GetParam(), threads, stores);
      expect_bits_of_whole_state(adam, before, 0, DType::kBf16, 1, true);
      if (HasFatalFailure()) return;
    }
  }
}

/// Ties that the update makes itself: without a gradient and moments masters stay as they are.
TEST_P(SplitIsa, UpdatesTiesOfBothKinds) {
  const Optimizer adam = optimizer(GetParam());
  for (const std::uint32_t upper : kUppers) {
    if (std::isnan(std::bit_cast<float>(upper << 16))) continue;
    std::vector<float> master(40, std::bit_cast<float>(upper << 16 | 0x8000U)), zeros(40);
    const Split split = split_of(adam, {master, zeros, zeros});
    Hyper hyper = some_hyper(Mode::kAdamW);
    hyper.weight_decay = 0;
    adam.update(hyper, split.state(), std::span<const float>(zeros), split.weights.span());
    std::vector<float> again(40);
    adam.join({again, {}, {}}, split.state());
    EXPECT_EQ(bits_of(again), bits_of(master)) << std::hex << upper;
    EXPECT_EQ(std::signbit(split.v.span()[39]), upper % 2 == 0) << std::hex << upper;
  }
}

TEST(SplitState, RefusesSpansOfUnequalLength) {
  const Optimizer adam = optimizer(Isa::kScalar);
  std::vector<float> nine(9), ten(10);
  std::vector<Bf16> weights(10), few(9);
  std::vector<std::uint16_t> low(10), short_low(9);
  const std::span<const float> gradient = ten;
  const Hyper hyper = some_hyper(Mode::kAdamW);
  const auto refused = [](const char* what, const auto& asked) {
    test::expect_error(Errc::kLogic, {what, "they must be equal"}, asked);
  };
  const auto update = [&](const SplitState& state, std::span<Bf16> published) {
    return [&adam, &hyper, gradient, state, published] {
      adam.update(hyper, state, gradient, published);
    };
  };
  refused("update: the lower half", update({short_low, weights, ten, ten}, weights));
  refused("the weights has 9", update({low, few, ten, ten}, weights));
  refused("m has 9", update({low, weights, nine, ten}, weights));
  refused("v has 9", update({low, weights, ten, nine}, weights));
  refused("the published copy has 9", update({low, weights, ten, ten}, few));
  const auto join = [&](const State& whole, const SplitState& split) {
    return [&adam, whole, split] { adam.join(whole, split); };
  };
  refused("join: master has 9", join({nine, ten, ten}, {low, weights, ten, ten}));
  refused("m has 9", join({ten, nine, ten}, {low, weights, ten, ten}));
  refused("v has 9", join({ten, ten, nine}, {low, weights, ten, ten}));
  refused("the weights has 9", join({ten, {}, {}}, {low, few, ten, ten}));
  refused("the marked v has 9", join({ten, {}, {}}, {low, weights, ten, nine}));
  refused("the split m has 9", join({ten, ten, ten}, {low, weights, nine, ten}));
  const auto split = [&](const SplitState& to, const State& whole) {
    return [&adam, to, whole] { adam.split(to, whole); };
  };
  refused("v has 9", split({low, {}, ten, ten}, {ten, ten, nine}));
  refused("m has 9", split({low, {}, ten, ten}, {ten, nine, ten}));
  refused("the lower half has 9", split({short_low, {}, ten, ten}, {ten, ten, ten}));
  refused("the split m has 9", split({low, {}, nine, ten}, {ten, ten, ten}));
  refused("the marked v has 9", split({low, {}, ten, nine}, {ten, ten, ten}));
}

}  // namespace
}  // namespace sluice::cpu_adam
