#include "engine/shape/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/shape/philox.h"

namespace sluice::shape {
namespace {

TensorSpec normal(std::string name, std::vector<std::int64_t> shape, double std) {
  return {Role::kUpWeight, std::move(name), std::move(shape), Init::kNormal, std};
}

std::vector<float> values(std::uint64_t seed, const TensorSpec& t) {
  std::vector<float> out(t.numel());
  initial_values(seed, t, 0, out);
  return out;
}

// The known answers that the authors of Philox publish with Random123.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(InitialValues, AreTheSameHoweverTheTensorIsCut) {
  const TensorSpec t = normal("model.layers.0.mlp.up_proj.weight", {37, 101}, 0.02);
  const std::vector<float> whole = values(7, t);
  for (const std::size_t cut : {1UL, 64UL, 1000UL, 3736UL}) {
    std::vector<float> pieces(whole.size());
    // From the last piece to the first: the order does not matter either.
    for (std::size_t at = (whole.size() - 1) / cut * cut;; at -= cut) {
      const std::size_t n = std::min(cut, whole.size() - at);
      initial_values(7, t, at, std::span(pieces).subspan(at, n));
      if (at == 0) break;
    }
    EXPECT_EQ(pieces, whole) << cut;
  }
}

TEST(InitialValues, DependOnSeedAndName) {
  const TensorSpec a = normal("a", {64}, 0.02);
  const TensorSpec b = normal("b", {64}, 0.02);
  EXPECT_NE(values(1, a), values(2, a));
  EXPECT_NE(values(1, a), values(1, b));
  EXPECT_NE(values(1, a), values(1 + (std::uint64_t{1} << 32), a)) << "all 64 bits of a seed count";
}

TEST(InitialValues, HaveTheMomentsOfANormalDeviate) {
  const std::vector<float> v = values(1337, normal("transformer.wte.weight", {1000, 1000}, 0.02));
  double sum = 0, squares = 0, neighbours = 0, most = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double x = static_cast<double>(v[i]) / 0.02;
    sum += x;
    squares += x * x;
    if (i > 0) neighbours += x * static_cast<double>(v[i - 1]) / 0.02;
    most = std::max(most, std::abs(x));
  }
  const double n = static_cast<double>(v.size());
  EXPECT_NEAR(sum / n, 0.0, 0.004);
  EXPECT_NEAR(squares / n, 1.0, 0.006);
  EXPECT_NEAR(neighbours / n, 0.0, 0.004);
  EXPECT_GT(most, 4.0);
  EXPECT_LT(most, 4.9);
}

using Bits = std::vector<std::uint32_t>;

Bits bits_at(std::uint64_t seed, const TensorSpec& t, std::uint64_t first) {
  std::vector<float> values(4);
  initial_values(seed, t, first, values);
  Bits bits;
  for (const float x : values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

// Pinned: a change here changes what every seed means. The values are those of
// tests/reference/initial.py, which is written from the header and the paper alone.
TEST(InitialValues, KeepTheirBits) {
  EXPECT_EQ(bits_at(1337, normal("transformer.wte.weight", {4}, 0.02), 0),
            (Bits{0xbd737d70, 0xbc1a1f34, 0xbd1250d0, 0x3acc5621}));
  EXPECT_EQ(bits_at(11, normal("model.layers.10.mlp.up_proj.weight", {200, 100}, 1.0), 12345),
            (Bits{0xbeaaadff, 0xbf5d545f, 0xbed6a567, 0x3f924cb3}));
}

TEST(InitialValues, UseAllBitsOfSeedAndElement) {
  constexpr std::uint64_t kTwoTo32 = std::uint64_t{1} << 32;
  const TensorSpec large = normal("lm_head.weight", {1 << 20, 1 << 13}, 0.1);
  EXPECT_EQ(bits_at((std::uint64_t{1} << 40) + 3, large, kTwoTo32 - 2),
            (Bits{0x3e58e7f9, 0x3dd33de0, 0x3dd16a83, 0x3da91d43}));
  EXPECT_NE(bits_at(11, large, 5), bits_at(11, large, kTwoTo32 + 5));
  EXPECT_NE(bits_at(11, large, 5), bits_at(11 + kTwoTo32, large, 5));
}

/// As the header says it, element by element: however many the drawing takes at a time.
TEST(InitialValues, AreEachTheSumOfItsOwnCounter) {
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 32) - 150;
  const TensorSpec large = normal("a", {1 << 20, 1 << 13}, 0.02);
  std::vector<float> out(333);
  initial_values((std::uint64_t{5} << 32) + 7, large, kFirst, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t element = kFirst + i;
    const PhiloxBlock bits = philox4x32_10(
        {static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(element >> 32),
         0x8601ec8cU, 0xaf63dc4cU},  // FNV-1a of "a"
        {7, 5});
    double sum = -8 * 32767.5;
    for (const std::uint32_t word : bits) sum += (word & 0xffffU) + (word >> 16);
    ASSERT_EQ(out[i], static_cast<float>(sum * (0.02 / 53509.91992145008))) << i;
  }
}

TEST(InitialValues, OfNormsAreOneAndOfBiasesZero) {
  const TensorSpec gain{Role::kFinalNormGain, "model.norm.weight", {5}, Init::kOnes, 0.0};
  EXPECT_EQ(values(3, gain), std::vector<float>(5, 1.0F));
  const TensorSpec bias{Role::kUpBias, "b", {5}, Init::kZeros, 0.0};
  EXPECT_EQ(values(3, bias), std::vector<float>(5, 0.0F));
}

TEST(InitialValues, OutsideTheTensorAreRefused) {
  const TensorSpec t = normal("a", {8}, 0.02);
  std::vector<float> out(4);
  EXPECT_NO_THROW(initial_values(1, t, 4, out));
  EXPECT_THROW(initial_values(1, t, 5, out), Error);
  EXPECT_THROW(initial_values(1, t, ~std::uint64_t{0}, out), Error);
}

}  // namespace
}  // namespace sluice::shape
