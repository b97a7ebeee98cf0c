#include <gtest/gtest.h>

#include <limits>

#include "tests/cpu_adam/oracle.h"
#include "tests/cpu_adam/problem.h"

namespace sluice::cpu_adam {
namespace {

Optimizer optimizer(Isa isa, unsigned threads = 1) {
  return Optimizer({.threads = threads, .isa = isa, .stores = Stores::kCached});
}

class NormIsa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Available, NormIsa, testing::ValuesIn(available_isas()), isa_name);

std::vector<double> norms(const Optimizer& adam, Gradient gradient, std::size_t count) {
  std::vector<double> partials(div_ceil(count, kGrainElems), -1.0);
  adam.grain_norms(gradient, partials);
  return partials;
}

double norm_of(std::span<const double> partials) {
  return global_norm({&partials, 1});
}

TEST_P(NormIsa, GivesTheBitsOfTheOracleForEveryTailAndAlignment) {
  const Optimizer adam = optimizer(GetParam());
  for (std::size_t count = 0; count <= 49; ++count) {
    for (std::size_t offset : {0U, 1U, 7U}) {
      const Problem p(count, offset, static_cast<unsigned>(count));
      std::vector<float> widened;
      for (Bf16 x : p.gradient16.span()) widened.push_back(to_float(x));
      std::vector<double> want32, want16;
      if (count != 0) want32.push_back(oracle::sum_squares(p.gradient32.span()));
      if (count != 0) want16.push_back(oracle::sum_squares(widened));
      ASSERT_EQ(norms(adam, gradient_of(p, DType::kF32), count), want32) << count;
      ASSERT_EQ(norms(adam, gradient_of(p, DType::kBf16), count), want16) << count;
    }
  }
}

TEST_P(NormIsa, IsTheSameForEveryThreadCountAndForSpansCutAtGrains) {
  constexpr std::size_t kCount = 21 * kGrainElems + 99;
  const Problem p(kCount, 0, 3);
  const std::span<const float> all = p.gradient32.span();
  std::vector<double> want;
  for (std::size_t at = 0; at < kCount; at += kGrainElems) {
    want.push_back(oracle::sum_squares(all.subspan(at, std::min(kGrainElems, kCount - at))));
  }
  for (unsigned threads = 1; threads <= 4; ++threads) {
    const Optimizer adam = optimizer(GetParam(), threads);
    EXPECT_EQ(norms(adam, all, kCount), want) << threads << " threads";
    for (std::size_t cut : {kGrainElems, 5 * kGrainElems, 20 * kGrainElems}) {
      std::vector<double> parts = norms(adam, all.first(cut), cut);
      const std::vector<double> rest = norms(adam, all.subspan(cut), kCount - cut);
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_EQ(parts, want) << "cut at " << cut;
      EXPECT_EQ(norm_of(parts), norm_of(want));
    }
  }
}

TEST_P(NormIsa, IsNotFiniteExactlyWhenAnElementIsNot) {
  const Optimizer adam = optimizer(GetParam());
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr std::size_t kCount = kGrainElems + 19;
  std::vector<float> gradient(kCount, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(norm_of(norms(adam, std::span<const float>(gradient), kCount))));
  for (std::size_t at : {std::size_t{0}, std::size_t{4095}, std::size_t{4100}, kCount - 1}) {
    for (float bad : {kInf, -kInf, kNaN, -kNaN}) {
      gradient[at] = bad;
      std::vector<Bf16> rounded;
      for (float x : gradient) rounded.push_back(to_bf16(std::isfinite(x) ? 1.0F : x));
      const std::vector<double> wide = norms(adam, std::span<const float>(gradient), kCount);
      const std::vector<double> narrow = norms(adam, std::span<const Bf16>(rounded), kCount);
      for (const std::vector<double>& partials : {wide, narrow}) {
        EXPECT_FALSE(std::isfinite(partials[at / kGrainElems])) << at;
        EXPECT_TRUE(std::isfinite(partials[1 - at / kGrainElems])) << at;
        EXPECT_FALSE(std::isfinite(norm_of(partials))) << at;
      }
    }
    gradient[at] = 1.0F;
  }
}

class SumIsa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Available, SumIsa, testing::ValuesIn(available_isas()), isa_name);

TEST_P(SumIsa, AssignsAccumulatesAndAddsLikeOneElementAtATime) {
  for (unsigned threads : {1U, 3U}) {
    const Optimizer adam = optimizer(GetParam(), threads);
    std::vector<std::size_t> counts{9 * kGrainElems + 3};
    for (std::size_t n = 0; n <= 49; ++n) counts.push_back(n);
    for (std::size_t count : counts) {
      const Problem p(count, count % 5, static_cast<unsigned>(count));
      const Problem out(count, count % 3, 0);
      const std::span<float> sum = out.published32.span();
      adam.assign(sum, gradient_of(p, DType::kBf16));
      adam.accumulate(sum, gradient_of(p, DType::kF32));
      adam.accumulate(sum, gradient_of(p, DType::kBf16));
      std::vector<float> want, both;
      for (std::size_t i = 0; i < count; ++i) {
        const float g16 = to_float(p.gradient16.span()[i]);
        want.push_back(g16 + p.gradient32.span()[i] + g16);
        both.push_back(g16 + p.gradient32.span()[i]);
      }
      ASSERT_EQ(bits_of(sum), bits_of(want)) << count;
      adam.add(sum, gradient_of(p, DType::kBf16), gradient_of(p, DType::kF32));
      ASSERT_EQ(bits_of(sum), bits_of(both)) << count;
      adam.add(sum, gradient_of(p, DType::kF32), gradient_of(p, DType::kBf16));
      ASSERT_EQ(bits_of(sum), bits_of(both)) << count;
      adam.assign(sum, gradient_of(p, DType::kF32));
      ASSERT_EQ(bits_of(sum), bits_of(p.gradient32.span())) << count;
      adam.add(sum, std::span<const float>(sum), std::span<const float>(sum));
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], 2 * p.gradient32.span()[i]);
      ASSERT_TRUE(out.guards_hold());
    }
  }
}

TEST_P(SumIsa, PublishesEveryFloatRoundedAsTheBaseRoomRounds) {
  const Optimizer adam = optimizer(GetParam(), 2);
  std::vector<float> master;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {  // each bf16, and around each tie
    for (std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      master.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  std::vector<Bf16> got(master.size()), want;
  for (float x : master) want.push_back(to_bf16(x));
  adam.publish(std::span<Bf16>(got), master);
  EXPECT_EQ(bits_of(got), bits_of(want));

  std::vector<float> same(master.size());
  adam.publish(std::span<float>(same), master);
  EXPECT_EQ(bits_of(same), bits_of(master));
  adam.publish(std::monostate{}, master);
}

TEST_P(SumIsa, WidensEveryBf16Exactly) {
  const Optimizer adam = optimizer(GetParam());
  std::vector<Bf16> narrow;
  std::vector<float> want;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    narrow.push_back({static_cast<std::uint16_t>(bits)});
    want.push_back(to_float(narrow.back()));
  }
  std::vector<float> got(narrow.size());
  adam.assign(got, std::span<const Bf16>(narrow));
  EXPECT_EQ(bits_of(got), bits_of(want));
}

}  // namespace
}  // namespace sluice::cpu_adam
