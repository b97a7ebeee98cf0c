#include "engine/model/kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ostream>
#include <tuple>

#include "harness.h"

namespace sluice::model {
namespace {

constexpr std::int64_t kSequences = 2, kHeads = 6, kKvHeads = 2, kDim = 16;

Heads random_heads(std::int64_t seq, at::ScalarType dtype, std::int64_t kv_heads = kKvHeads) {
  return {random({kSequences, kHeads, seq, kDim}, dtype, 1),
          random({kSequences, kv_heads, seq, kDim}, dtype, 2),
          random({kSequences, kv_heads, seq, kDim}, dtype, 3)};
}

struct Tokens {
  std::int64_t seq, window, kv_heads = kKvHeads;
};
std::ostream& operator<<(std::ostream& out, const Tokens& t) {
  return out << "window " << t.window << " of " << t.seq << ", " << t.kv_heads << " kv heads";
}

class Windows : public ::testing::TestWithParam<std::tuple<Tokens, at::ScalarType>> {};

TEST_P(Windows, AgreeWithAllScoresAtOnce) {
  const auto [tokens, dtype] = GetParam();
  const auto [seq, window, kv_heads] = tokens;
  // fp32: as blocks_test.cpp has it. bf16, fp16: roundings of 4e-3, 5e-4 in the products of three
  // tensors.
  const double bound = dtype == at::kFloat ? 3e-6 : dtype == at::kHalf ? 2.5e-3 : 2e-2;
  const Heads heads = random_heads(seq, dtype, kv_heads);
  const at::Tensor dout = random({kSequences, kHeads, seq, kDim}, dtype, 4);
  const Looked looked = look(heads, window);
  const Heads gradients = look_backward(heads, looked, dout, window);

  const auto leaf = [](const at::Tensor& t) {
    return t.to(at::kDouble).clone().requires_grad_(true);
  };
  const Heads leaves{leaf(heads.q), leaf(heads.k), leaf(heads.v)};
  const at::Tensor out = all_scores(leaves, window);
  const auto expected =
      torch::autograd::grad({out}, {leaves.q, leaves.k, leaves.v}, {dout.to(at::kDouble)});
  EXPECT_LT(relative_error(looked.out, out), bound);
  EXPECT_LT(relative_error(gradients.q, expected[0]), bound);
  EXPECT_LT(relative_error(gradients.k, expected[1]), bound);
  EXPECT_LT(relative_error(gradients.v, expected[2]), bound);
}

// The long ones are several blocks of queries and of keys, with a rest that is shorter or none
// (332).
INSTANTIATE_TEST_SUITE_P(
    Sizes, Windows,
    testing::Combine(testing::Values(Tokens{300, 0}, Tokens{300, 2}, Tokens{300, 40},
                                     Tokens{300, 128}, Tokens{300, 172}, Tokens{300, 299},
                                     Tokens{300, 300}, Tokens{1100, 3}, Tokens{1100, 257},
                                     Tokens{1100, 332}, Tokens{1100, 700},
                                     Tokens{1100, 257, kHeads}),
                     testing::Values(at::kFloat, at::kBFloat16, at::kHalf)));

TEST(Windows, OfAllTokensAreNone) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Heads heads = random_heads(300, dtype);
    const at::Tensor of_all = look(heads, 300).out.contiguous();
    EXPECT_TRUE(same_bits(of_all, look(heads, 0).out.contiguous())) << dtype;
  }
}

/// Softmax of one score is 1, whatever the score: so no relative error of gradients that are zero.
TEST(Windows, OfOneTokenSeeItsValue) {
  const Heads heads = random_heads(1100, at::kFloat);
  const at::Tensor dout = random({kSequences, kHeads, 1100, kDim}, at::kFloat, 4);
  const Looked looked = look(heads, 1);
  const Heads gradients = look_backward(heads, looked, dout, 1);
  EXPECT_LT(relative_error(looked.out, heads.v.repeat_interleave(kHeads / kKvHeads, 1)), 3e-6);
  const at::Tensor groups = dout.unflatten(1, {kKvHeads, kHeads / kKvHeads});
  EXPECT_LT(relative_error(gradients.v, groups.sum(2)), 3e-6);
  EXPECT_LT(gradients.q.abs().max().item<double>(), 1e-5);
  EXPECT_LT(gradients.k.abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace sluice::model
