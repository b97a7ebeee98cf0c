#include "engine/model/kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <tuple>

#include "harness.h"

namespace sluice::model {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 6, kKvHeads = 2, kDim = 16, kSeq = 300;

Heads random_heads(at::ScalarType dtype) {
  return {random({kBatch, kHeads, kSeq, kDim}, dtype, 1),
          random({kBatch, kKvHeads, kSeq, kDim}, dtype, 2),
          random({kBatch, kKvHeads, kSeq, kDim}, dtype, 3)};
}

/// All scores at once, in fp64.
at::Tensor plain(const Heads& h, std::int64_t window) {
  const at::Tensor k = h.k.repeat_interleave(kHeads / kKvHeads, 1);
  const at::Tensor v = h.v.repeat_interleave(kHeads / kKvHeads, 1);
  const at::Tensor all = at::ones({kSeq, kSeq}, at::kBool);
  at::Tensor unseen = all.triu(1);
  if (window > 0) unseen = unseen.logical_or(all.tril(-window));
  const at::Tensor scores = at::matmul(h.q, k.transpose(2, 3)) / std::sqrt(double{kDim});
  return at::matmul(scores.masked_fill(unseen, -INFINITY).softmax(-1), v);
}

class Windows : public ::testing::TestWithParam<std::tuple<std::int64_t, at::ScalarType>> {};

TEST_P(Windows, AgreeWithAllScoresAtOnce) {
  const auto [window, dtype] = GetParam();
  // fp32: as blocks_test.cpp has it. bf16: roundings of 4e-3 in the products of three tensors.
  const double bound = dtype == at::kFloat ? 3e-6 : 2e-2;
  const Heads heads = random_heads(dtype);
  const at::Tensor dout = random({kBatch, kHeads, kSeq, kDim}, dtype, 4);
  const Looked looked = look(heads, window);
  const Heads gradients = look_backward(heads, looked, dout, window);

  const auto leaf = [](const at::Tensor& t) {
    return t.to(at::kDouble).clone().requires_grad_(true);
  };
  const Heads leaves{leaf(heads.q), leaf(heads.k), leaf(heads.v)};
  const at::Tensor out = plain(leaves, window);
  const auto expected =
      torch::autograd::grad({out}, {leaves.q, leaves.k, leaves.v}, {dout.to(at::kDouble)});
  EXPECT_LT(relative_error(looked.out, out), bound);
  EXPECT_LT(relative_error(gradients.q, expected[0]), bound);
  EXPECT_LT(relative_error(gradients.k, expected[1]), bound);
  EXPECT_LT(relative_error(gradients.v, expected[2]), bound);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Windows,
                         testing::Combine(testing::Values(0, 2, 3, 40, 128, 172, 299, 300),
                                          testing::Values(at::kFloat, at::kBFloat16)));

TEST(Windows, OfAllTokensAreNone) {
  const Heads heads = random_heads(at::kFloat);
  EXPECT_TRUE(same_bits(look(heads, kSeq).out, look(heads, 0).out));
}

}  // namespace
}  // namespace sluice::model
