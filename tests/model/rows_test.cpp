// Norms and biases over more rows than one row block holds.
#include <ATen/ops/layer_norm.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/model/linear.h"
#include "engine/model/norm.h"
#include "harness.h"

namespace sluice::model {
namespace {

using shape::Role;

constexpr std::int64_t kRows = 9001;  // of 60: two blocks and a bit

class ManyRows : public ::testing::Test {
 protected:
  const shape::Decoder d = decoder_named("gpt2");
  BlockParams params{d, shape::BlockKind::kLayer, at::kFloat};
};

TEST_F(ManyRows, ANormTreatsEveryRow) {
  const Norm norm = attention_norm(d);
  const at::Tensor x = random({kRows, d.hidden}, at::kFloat, 1);
  const at::Tensor dy = random({kRows, d.hidden}, at::kFloat, 2);
  const Normed normed = forward(norm, params, x);
  const at::Tensor dx = backward(norm, params, params, x, normed, dy);

  const auto weights = params.for_reference();
  const at::Tensor ref_x = x.to(at::kDouble).requires_grad_(true);
  const at::Tensor y =
      at::layer_norm(ref_x, {d.hidden}, weights.at(norm.gain), weights.at(norm.bias), d.norm_eps);
  const auto expected = torch::autograd::grad(
      {y}, {ref_x, weights.at(norm.gain), weights.at(norm.bias)}, {dy.to(at::kDouble)});
  EXPECT_LT(relative_error(normed.y_NH, y), 1e-6);
  EXPECT_LT(relative_error(dx, expected[0]), 1e-6);
  EXPECT_LT(relative_error(params.gradients().at(norm.gain), expected[1]), 1e-6);
  EXPECT_LT(relative_error(params.gradients().at(norm.bias), expected[2]), 1e-6);
}

TEST_F(ManyRows, ABiasSumsEveryRow) {
  const Linear linear{d.linear, Role::kOutWeight, Role::kOutBias};
  const at::Tensor x = random({kRows, d.hidden}, at::kFloat, 1);
  const at::Tensor dy = random({kRows, d.hidden}, at::kFloat, 2);
  backward(linear, params, params, x, dy);
  EXPECT_LT(relative_error(params.gradients().at(Role::kOutBias), dy.to(at::kDouble).sum(0)), 1e-6);
}

}  // namespace
}  // namespace sluice::model
