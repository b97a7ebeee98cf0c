#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/cpu_adam/oracle.h"
#include "tests/cpu_adam/problem.h"

namespace sluice::cpu_adam {
namespace {

enum class Copy { kNone, kF32, kBf16, kF16 };

Published published_of(const Problem& p, Copy copy) {
  switch (copy) {
    case Copy::kNone:
      return std::monostate{};
    case Copy::kF32:
      return p.published32.span();
    case Copy::kBf16:
      return p.published_bf16.span();
    case Copy::kF16:
      return p.published_fp16.span();
  }
  return std::monostate{};
}

void expect_oracle(const Problem& before, const Problem& after, const Hyper& hyper, DType type,
                   Copy copy, int terms = 1) {
  const std::vector<float> gradient = wide_gradient(before, type, terms);
  for (std::size_t i = 0; i < before.master.span().size(); ++i) {
    const float g = gradient[i];
    const oracle::Element want =
        oracle::update(hyper, {before.master.span()[i], before.m.span()[i], before.v.span()[i]}, g);
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    ASSERT_EQ(bits(after.master.span()[i]), bits(want.master)) << "master " << i;
    ASSERT_EQ(bits(after.m.span()[i]), bits(want.m)) << "m " << i;
    ASSERT_EQ(bits(after.v.span()[i]), bits(want.v)) << "v " << i;
    const float copy32 = copy == Copy::kF32 ? want.master : 0.0F;
    const Bf16 copy_bf16 = copy == Copy::kBf16 ? to_bf16(want.master) : Bf16{};
    const Fp16 copy_fp16 = copy == Copy::kF16 ? to_fp16(want.master) : Fp16{};
    ASSERT_EQ(bits(after.published32.span()[i]), bits(copy32)) << "fp32 copy " << i;
    ASSERT_EQ(after.published_bf16.span()[i].bits, copy_bf16.bits) << "bf16 copy " << i;
    ASSERT_EQ(after.published_fp16.span()[i].bits, copy_fp16.bits) << "fp16 copy " << i;
  }
}

class AdamIsa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Available, AdamIsa, testing::ValuesIn(available_isas()), isa_name);

TEST_P(AdamIsa, GivesTheBitsOfTheOracleForEveryLengthAlignmentTypeAndMode) {
  constexpr std::size_t kMostLanes = 16;
  for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
    const Optimizer adam = optimizer(GetParam(), 1, stores);
    for (std::size_t count = 0; count <= 3 * kMostLanes + 1; ++count) {
      for (std::size_t offset : {0U, 1U, 7U}) {
        const Problem before(count, offset, static_cast<unsigned>(100 * count + offset));
        for (DType type : kTypes) {
          for (Copy copy : {Copy::kNone, Copy::kF32, Copy::kBf16, Copy::kF16}) {
            // A gradient of two terms in one mode only: what follows their sum is the same.
            for (const auto& [mode, terms] : {std::pair(Mode::kAdamW, 1), std::pair(Mode::kAdam, 1),
                                              std::pair(Mode::kAdamW, 2)}) {
              SCOPED_TRACE(testing::Message() << "count " << count << " offset " << offset << ", "
                                              << terms << " terms");
              const Problem after = before;
              const Hyper hyper = some_hyper(mode);
              adam.update(hyper, after.state(), gradient_of(after, type, terms),
                          published_of(after, copy));
              expect_oracle(before, after, hyper, type, copy, terms);
              if (HasFatalFailure()) return;
              ASSERT_TRUE(after.guards_hold());
            }
          }
        }
      }
    }
  }
}

TEST_P(AdamIsa, GivesTheBitsOfTheOracleOverManyGrainsAndEveryThreadCount) {
  const Problem before(9 * kGrainElems + 37, 0, 5);
  struct Types {
    DType gradient;
    int terms;
    Copy copy;
  };
  for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
    for (unsigned threads = 1; threads <= 4; ++threads) {
      for (const auto [gradient, terms, copy] :
           {Types{DType::kF32, 1, Copy::kF32}, Types{DType::kBf16, 1, Copy::kBf16},
            Types{DType::kF16, 1, Copy::kF16}, Types{DType::kBf16, 2, Copy::kBf16}}) {
        SCOPED_TRACE(testing::Message() << threads << " threads, " << name_of(gradient));
        const Problem after = before;
        const Hyper hyper = some_hyper(Mode::kAdamW);
        optimizer(GetParam(), threads, stores)
            .update(hyper, after.state(), gradient_of(after, gradient, terms),
                    published_of(after, copy));
        expect_oracle(before, after, hyper, gradient, copy, terms);
        if (HasFatalFailure()) return;
        ASSERT_TRUE(after.guards_hold());
      }
    }
  }
}

TEST_P(AdamIsa, GivesTheBitsOfTheOracleForTheConstantsOfEveryStep) {
  const Optimizer adam = optimizer(GetParam());
  const Problem before(17, 0, 4);
  for (std::uint64_t t = 1; t <= 300; ++t) {
    SCOPED_TRACE(testing::Message() << "update " << t);
    const Problem after = before;
    Hyper hyper = some_hyper(t % 2 == 0 ? Mode::kAdamW : Mode::kAdam);
    hyper.lr = 3e-4F * static_cast<float>(t);
    hyper.bias_correction1 = bias_correction(hyper.beta1, t);
    hyper.bias_correction2 = bias_correction(hyper.beta2, t);
    adam.update(hyper, after.state(), gradient_of(after, DType::kF32), std::monostate{});
    expect_oracle(before, after, hyper, DType::kF32, Copy::kNone);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AdamIsa, FollowsThePapersFormulaInDoubleOverManySteps) {
  constexpr std::size_t kCount = 257;
  const Optimizer adam = optimizer(GetParam());
  for (Mode mode : {Mode::kAdamW, Mode::kAdam}) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::vector<float> master(kCount), m(kCount), v(kCount), gradient(kCount);
    std::vector<oracle::Exact> exact;
    std::vector<oracle::Bound> bound(kCount);
    for (float& x : master) exact.push_back({.master = double{x = normal(random)}});
    Hyper hyper = some_hyper(mode);
    hyper.lr = 1e-2F;
    for (int t = 1; t <= 100; ++t) {
      hyper.bias_correction1 = bias_correction(hyper.beta1, static_cast<std::uint64_t>(t));
      hyper.bias_correction2 = bias_correction(hyper.beta2, static_cast<std::uint64_t>(t));
      for (float& g : gradient) g = normal(random);
      adam.update(hyper, {master, m, v}, std::span<const float>(gradient), std::monostate{});
      for (std::size_t i = 0; i < kCount; ++i) {
        SCOPED_TRACE(testing::Message() << "update " << t << ", element " << i);
        const oracle::Exact before = exact[i];
        exact[i].update(hyper, double{gradient[i]}, t);
        bound[i].update(hyper, before, exact[i], double{gradient[i]}, t);
        ASSERT_NEAR(m[i], exact[i].m, oracle::Bound::kRest * bound[i].m);
        ASSERT_NEAR(v[i], exact[i].v, oracle::Bound::kRest * bound[i].v);
        ASSERT_NEAR(master[i], exact[i].master, oracle::Bound::kRest * bound[i].master);
      }
    }
  }
}

TEST_P(AdamIsa, KeepsItsBitsWhateverFloatingPointStateTheCallerHas) {
  const Problem before(2 * kGrainElems + 5, 0, 8);
  for (unsigned threads : {1U, 2U}) {
    const Optimizer adam = optimizer(GetParam(), threads);
    const Problem after = before;
    const Hyper hyper = some_hyper(Mode::kAdamW);
    ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
    adam.update(hyper, after.state(), gradient_of(after, DType::kF32), after.published32.span());
    EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller's state was not put back";
    std::fesetround(FE_TONEAREST);
    expect_oracle(before, after, hyper, DType::kF32, Copy::kF32);
  }
}

TEST_P(AdamIsa, LeavesPaddingZero) {
  std::vector<float> master(100), m(100), v(100), gradient(100);
  std::vector<Bf16> copy(100, Bf16{0x1234});
  optimizer(GetParam())
      .update(some_hyper(Mode::kAdamW), {master, m, v}, std::span<const float>(gradient),
              std::span<Bf16>(copy));
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(master[i]), 0U);
    EXPECT_EQ(copy[i].bits, 0U);
  }
}

TEST_P(AdamIsa, GivesNaNForANaNGradientInAllFourPlacesAndNowhereElse) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> master(50, 1.0F), m(50), v(50), gradient(50, 0.1F);
  std::vector<Bf16> copy(50);
  gradient[3] = nan;
  gradient[49] = nan;
  optimizer(GetParam())
      .update(some_hyper(Mode::kAdamW), {master, m, v}, std::span<const float>(gradient),
              std::span<Bf16>(copy));
  for (std::size_t i = 0; i < 50; ++i) {
    const bool bad = i == 3 || i == 49;
    EXPECT_EQ(std::isnan(master[i]), bad) << i;
    EXPECT_EQ(std::isnan(m[i]), bad) << i;
    EXPECT_EQ(std::isnan(v[i]), bad) << i;
    EXPECT_EQ(std::isnan(to_float(copy[i])), bad) << i;
  }
}

}  // namespace
}  // namespace sluice::cpu_adam
