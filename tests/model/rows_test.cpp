// Norms and biases over many rows.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/model/linear.h"
#include "engine/model/norm.h"
#include "harness.h"
#include "rows_oracle.h"
#include "threads.h"

namespace sluice::model {
namespace {

using shape::Role;

constexpr std::int64_t kRows = 9001;

class ManyRows : public ::testing::Test {
 protected:
  const shape::Decoder d = decoder_named("gpt2");
  BlockParams params{d, shape::BlockKind::kLayer, at::kFloat};
};

// Of a row its 60 elements, one on top of the other; of a column the rows of a part, 32 or more,
// and the parts.
constexpr Depths kDepths{.row = 60, .column = 32 + kRows / 32 + 2};

TEST_F(ManyRows, ANormTreatsEveryRow) {
  const Norm norm = attention_norm(d);
  const at::Tensor x = random({kRows, d.hidden}, at::kFloat, 1);
  const at::Tensor dy = random({kRows, d.hidden}, at::kFloat, 2);
  const NormCase c{x, params.weight(norm.gain), params.weight(norm.bias), dy, {}};
  const auto& gradients = params.gradients();
  for_threads({1, 2, 3, 4}, [&] {
    const Normed normed = forward(norm, params, x);
    const at::Tensor dx = backward(norm, params, params, x, normed, dy);
    expect_norm({normed.y_NH, dx, gradients.at(norm.gain), gradients.at(norm.bias)}, c, kDepths);
  });
}

TEST_F(ManyRows, ABiasSumsEveryRow) {
  const Linear linear{d.linear, Role::kOutWeight, Role::kOutBias};
  const at::Tensor x = random({kRows, d.hidden}, at::kFloat, 1);
  const at::Tensor dy = random({kRows, d.hidden}, at::kFloat, 2);
  const at::Tensor exact = dy.to(at::kDouble);
  for_threads({1, 2, 3, 4}, [&] {
    backward(linear, params, params, x, dy);
    expect_within(params.gradients().at(Role::kOutBias), exact.sum(0), kDepths.column,
                  exact.abs().sum(0));
  });
}

}  // namespace
}  // namespace sluice::model
