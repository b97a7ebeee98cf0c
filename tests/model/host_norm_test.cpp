// The host's norms and their way back, as host_rows_test.cpp has the other kernels; with a gradient
// in fp32 beside a narrower input, too, as a head that sums over chunks of the vocabulary gives.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/model/row_kernels.h"
#include "every_isa.h"
#include "harness.h"
#include "rows_oracle.h"

namespace sluice::model {
namespace {

constexpr std::int64_t kNormRows = 70;  // three parts of a sum over rows

NormCase norm_case(std::int64_t width, bool has_bias) {
  // Such that a row's spread is about its mean: less would be cancelled away.
  const at::Tensor signs = at::arange(width).remainder(2).mul(2).sub(1);
  NormCase c;
  c.x = signs + 0.25 * random({kNormRows, width}, at::kFloat, 1) + 0.5;
  c.gain = random({width}, at::kFloat, 2), c.dy = random({kNormRows, width}, at::kFloat, 3);
  c.plus = random({kNormRows, width}, at::kFloat, 4);
  if (has_bias) c.bias = random({width}, at::kFloat, 5);
  return c;
}

/// In the order of expect_norm().
std::vector<at::Tensor> norm_both_ways(const NormCase& c) {
  const Normed normed = norm_rows(c.x, c.gain, c.bias, 1e-5);
  const auto poison = [](const at::Tensor& like) {
    return poisoned(like.sizes(), like.scalar_type());
  };
  const NormGradients to{poison(c.gain), c.bias.defined() ? poison(c.bias) : c.bias, poison(c.x)};
  norm_rows_backward(c.x, normed, c.gain, c.dy, c.plus, to);
  std::vector<at::Tensor> all{normed.y_NH, to.out_dx_NH, to.out_dgain_H};
  if (c.bias.defined()) all.push_back(to.out_dbias_H);
  return all;
}

/// Of a norm's input and of the gradient that comes back to it.
struct NormTypes {
  at::ScalarType x, dy;
};
constexpr NormTypes kNormTypes[] = {{at::kFloat, at::kFloat},
                                    {at::kBFloat16, at::kBFloat16},
                                    {at::kBFloat16, at::kFloat},
                                    {at::kHalf, at::kHalf},
                                    {at::kHalf, at::kFloat}};

template <class Body>
void for_norm_cases(NormTypes types, Body body) {
  for (const std::int64_t width : {1, 3, 63, 64, 65, 100, 768, 1000}) {
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << types.x << ", of " << types.dy << ", " << width
                                      << (has_bias ? ", bias" : ""));
      body(norm_case(width, has_bias).to(types.x, types.dy));
    }
  }
}

// In a row its rounds of 64, what is left of one, and the fold of 64 lanes; in a column the rows of
// a part, the three parts and what is around them.
TEST(HostNorms, AreExactToTheirRoundings) {
  for (const NormTypes types : kNormTypes) {
    for_norm_cases(types, [](const NormCase& c) {
      const auto rounds = static_cast<double>(c.x.size(1) / 64);
      expect_norm(norm_both_ways(c), c, {.row = rounds + 4 + 6, .column = 32 + 3 + 2});
    });
  }
}

TEST(HostNorms, In16BitsAreThoseInFp32RoundedOnce) {
  for (const NormTypes types : kNormTypes) {
    for_norm_cases(types, [&](const NormCase& c) {
      const auto got = norm_both_ways(c), wide = norm_both_ways(c.to(at::kFloat, at::kFloat));
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(same_bits(got[i], wide[i].to(types.x))) << i;
      }
    });
  }
}

TEST(HostNorms, AGradientMayLieWhereItCameFrom) {
  const NormCase c = norm_case(100, true);
  const at::Tensor apart = norm_both_ways(c)[1];
  const Normed normed = norm_rows(c.x, c.gain, c.bias, 1e-5);
  for (const bool in_dy : {false, true}) {
    const at::Tensor dy = c.dy.clone(), plus = c.plus.clone();
    const at::Tensor dgain = at::empty_like(c.gain), dbias = at::empty_like(c.bias);
    norm_rows_backward(c.x, normed, c.gain, dy, plus, {dgain, dbias, in_dy ? dy : plus});
    EXPECT_TRUE(same_bits(in_dy ? dy : plus, apart));
  }
}

TEST(HostNorms, HaveTheSameBitsOnEveryInstructionSetAndForEveryNumberOfThreads) {
  for (const NormTypes types : kNormTypes) {
    expect_same_bits_on_every_isa([&] {
      std::vector<at::Tensor> all;
      for_norm_cases(types, [&](const NormCase& c) {
        for (const at::Tensor& t : norm_both_ways(c)) all.push_back(t);
      });
      return all;
    });
  }
}

}  // namespace
}  // namespace sluice::model
