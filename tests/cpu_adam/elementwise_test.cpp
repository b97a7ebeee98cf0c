#include <gtest/gtest.h>

#include <limits>

#include "tests/cpu_adam/oracle.h"
#include "tests/cpu_adam/problem.h"

namespace sluice::cpu_adam {
namespace {

class NormIsa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Available, NormIsa, testing::ValuesIn(available_isas()), isa_name);

std::vector<double> norms(const Optimizer& adam, Gradient gradient, std::size_t count) {
  std::vector<double> partials(div_ceil(count, kGrainElems), -1.0);
  adam.grain_norms(gradient, partials);
  return partials;
}

std::vector<double> norms_of_oracle(std::span<const float> gradient) {
  std::vector<double> partials;
  for (std::size_t at = 0; at < gradient.size(); at += kGrainElems) {
    const std::size_t count = std::min(kGrainElems, gradient.size() - at);
    partials.push_back(oracle::sum_squares(gradient.subspan(at, count)));
  }
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
      for (const DType type : kTypes) {
        for (const int terms : {1, 2}) {
          std::vector<double> want;
          if (count != 0) want.push_back(oracle::sum_squares(wide_gradient(p, type, terms)));
          ASSERT_EQ(norms(adam, gradient_of(p, type, terms), count), want)
              << count << name_of(type) << terms;
        }
      }
    }
  }
}

TEST_P(NormIsa, IsTheSameForEveryThreadCountAndForSpansCutAtGrains) {
  constexpr std::size_t kCount = 21 * kGrainElems + 99;
  const Problem p(kCount, 0, 3);
  const std::span<const float> all = p.gradient32.span();
  const std::vector<double> want = norms_of_oracle(all);
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

TEST_P(NormIsa, OfEveryTypeIsTheSameForEveryThreadCount) {
  constexpr std::size_t kCount = 9 * kGrainElems + 99;
  const Problem p(kCount, 0, 4);
  for (const DType type : kTypes) {
    for (const int terms : {1, 2}) {
      const std::vector<double> want = norms_of_oracle(wide_gradient(p, type, terms));
      for (unsigned threads = 1; threads <= 4; ++threads) {
        const Optimizer adam = optimizer(GetParam(), threads);
        EXPECT_EQ(norms(adam, gradient_of(p, type, terms), kCount), want)
            << threads << name_of(type) << terms;
      }
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
      std::vector<Bf16> brain;
      std::vector<Fp16> half;
      for (const float x : gradient) {
        brain.push_back(to_bf16(std::isfinite(x) ? 1.0F : x));
        half.push_back(to_fp16(std::isfinite(x) ? 1.0F : x));
      }
      const std::vector<double> wide = norms(adam, std::span<const float>(gradient), kCount);
      const std::vector<double> of_bf16 = norms(adam, std::span<const Bf16>(brain), kCount);
      const std::vector<double> of_fp16 = norms(adam, std::span<const Fp16>(half), kCount);
      for (const std::vector<double>& partials : {wide, of_bf16, of_fp16}) {
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
  for (unsigned threads = 1; threads <= 4; ++threads) {
    const Optimizer adam = optimizer(GetParam(), threads);
    std::vector<std::size_t> counts{9 * kGrainElems + 3};
    for (std::size_t n = 0; n <= 49; ++n) counts.push_back(n);
    for (std::size_t count : counts) {
      const Problem p(count, count % 5, static_cast<unsigned>(count));
      const Problem out(count, count % 3, 0);
      const std::span<float> sum = out.published32.span();
      for (const DType a : kTypes) {
        const std::vector<float> wide_a = wide_gradient(p, a);
        adam.assign(sum, values_of(p, a));
        ASSERT_EQ(bits_of(sum), bits_of(wide_a)) << count;
        for (const DType b : kTypes) {
          const std::vector<float> wide_b = wide_gradient(p, b);
          std::vector<float> both, more;
          for (std::size_t i = 0; i < count; ++i) {
            both.push_back(sum_of(wide_a[i], wide_b[i]));
            more.push_back(sum_of(both[i], wide_b[i]));
          }
          adam.add(sum, values_of(p, a), values_of(p, b));
          ASSERT_EQ(bits_of(sum), bits_of(both)) << count;
          adam.accumulate(sum, values_of(p, b));
          ASSERT_EQ(bits_of(sum), bits_of(more)) << count;
        }
      }
      adam.assign(sum, values_of(p, DType::kF32));
      adam.add(sum, std::span<const float>(sum), std::span<const float>(sum));
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], 2 * p.gradient32.span()[i]);
      ASSERT_TRUE(out.guards_hold());
    }
  }
}

template <class Half, class Round>
void expect_published(const Optimizer& adam, const std::vector<float>& master, Round round) {
  std::vector<Half> got(master.size()), want;
  for (const float x : master) want.push_back(round(x));
  adam.publish(std::span<Half>(got), master);
  EXPECT_EQ(bits_of(got), bits_of(want));
}

TEST_P(SumIsa, PublishesEveryFloatRoundedAsTheBaseRoomRounds) {
  std::vector<float> master;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {  // each bf16, and around each tie
    for (std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      master.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (unsigned threads = 1; threads <= 4; ++threads) {
    expect_published<Bf16>(optimizer(GetParam(), threads), master, to_bf16);
  }
  for (std::uint32_t high = 0; high < 0x80000; ++high) {  // around each tie of a normal fp16
    for (std::uint32_t low : {0x0fffU, 0x1000U, 0x1001U}) {
      master.push_back(std::bit_cast<float>(high << 13 | low));
    }
  }
  for (std::uint32_t units = 0; units < 0x400; ++units) {  // and of each subnormal one
    const float tie = (static_cast<float>(units) + 0.5F) * 0x1p-24F;
    const auto bits = std::bit_cast<std::uint32_t>(tie);
    for (const std::uint32_t near : {bits - 1, bits, bits + 1}) {
      master.push_back(std::bit_cast<float>(near));
      master.push_back(-master.back());
    }
  }
  for (unsigned threads = 1; threads <= 4; ++threads) {
    expect_published<Fp16>(optimizer(GetParam(), threads), master, to_fp16);
  }

  const Optimizer adam = optimizer(GetParam(), 2);
  std::vector<float> same(master.size());
  adam.publish(std::span<float>(same), master);
  EXPECT_EQ(bits_of(same), bits_of(master));
  adam.publish(std::monostate{}, master);
}

template <class Half>
void expect_widened(const Optimizer& adam) {
  std::vector<Half> narrow;
  std::vector<float> want;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    narrow.push_back({static_cast<std::uint16_t>(bits)});
    want.push_back(to_float(narrow.back()));
  }
  std::vector<float> got(narrow.size());
  adam.assign(got, std::span<const Half>(narrow));
  EXPECT_EQ(bits_of(got), bits_of(want));
}

TEST_P(SumIsa, WidensEveryHalfExactly) {
  for (unsigned threads = 1; threads <= 4; ++threads) {
    const Optimizer adam = optimizer(GetParam(), threads);
    expect_widened<Bf16>(adam);
    expect_widened<Fp16>(adam);
  }
}

}  // namespace
}  // namespace sluice::cpu_adam
