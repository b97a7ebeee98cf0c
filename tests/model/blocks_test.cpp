#include "engine/model/blocks.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <tuple>

#include "harness.h"

namespace sluice::model {
namespace {

using shape::BlockKind;
using ::testing::UnorderedElementsAreArray;

// An op is held to the 2-norm of its error. fp32: some tens of roundings of 6e-8, growing with the
// square root of the length of a sum (up to 211 terms here); 9e-7 is the most that is seen. bf16:
// some ten roundings of up to 4e-3 on the way; 1.1e-2 is seen.
double bound(at::ScalarType dtype) {
  return dtype == at::kFloat ? 3e-6 : 2e-2;
}

class Blocks : public ::testing::TestWithParam<std::tuple<std::string, at::ScalarType, bool>> {
 protected:
  static constexpr std::int64_t kBatch = 3, kSeq = 37;
  const shape::Decoder d = decoder_named(std::get<0>(GetParam()));
  const at::ScalarType dtype = std::get<1>(GetParam());
  const at::Tensor positions =
      std::get<2>(GetParam()) ? document_positions(kBatch, kSeq) : plain_positions(kBatch, kSeq);

  at::Tensor random_x(std::uint64_t seed) const {
    return random({kBatch, kSeq, d.hidden}, dtype, seed);
  }
  at::Tensor poisoned_x() const { return poisoned({kBatch, kSeq, d.hidden}, dtype); }

  // Compares every gradient of the block with autograd's of `value` by the reference weights.
  void expect_gradients(BlockParams& params, BlockKind kind, const at::Tensor& value,
                        const reference::Weights& weights, const at::Tensor& dvalue) {
    EXPECT_THAT(params.asked(), UnorderedElementsAreArray(gradient_roles(d, kind)));
    EXPECT_EQ(params.asked().size(), params.gradients().size());
    for (const auto& [role, gradient] : params.gradients()) {
      const auto expected = torch::autograd::grad({value}, {weights.at(role)}, {dvalue},
                                                  /*retain_graph=*/true)[0];
      const double error = relative_error(gradient, expected);
      EXPECT_LT(error, bound(dtype)) << "gradient of role " << static_cast<int>(role);
    }
  }
};

TEST_P(Blocks, LayerAgreesWithPlainAutogradForEveryChunk) {
  const at::Tensor x = random_x(1), dy = random_x(2);
  for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{25}, kBatch * kSeq - 1,
                                   kBatch * kSeq, std::int64_t{100000}}) {
    SCOPED_TRACE(chunk);
    BlockParams params(d, BlockKind::kLayer, dtype);
    const at::Tensor out = poisoned_x(), dx = poisoned_x();
    layer_forward(d, params, places_of(positions), x, chunk, out);
    layer_backward(d, params, places_of(positions), x, dy, chunk, params, dx);

    const auto weights = params.for_reference();
    const at::Tensor ref_x = x.to(at::kDouble).clone().requires_grad_(true);
    const at::Tensor ref_dy = dy.to(at::kDouble);
    const at::Tensor ref_out = reference::layer(d, weights, positions, ref_x);
    EXPECT_LT(relative_error(out, ref_out), bound(dtype));
    EXPECT_LT(relative_error(dx, torch::autograd::grad({ref_out}, {ref_x}, {ref_dy},
                                                       /*retain_graph=*/true)[0]),
              bound(dtype));
    expect_gradients(params, BlockKind::kLayer, ref_out, weights, ref_dy);
  }
}

TEST_P(Blocks, EmbeddingAgreesWithPlainAutograd) {
  BlockParams params(d, BlockKind::kEmbed, dtype);
  const at::Tensor tokens = random_tokens({kBatch, kSeq}, 40, 3);  // many twice, most never
  const at::Tensor dx = random_x(4), out = poisoned_x();
  embed_forward(d, params, tokens, positions, out);
  embed_backward(d, tokens, positions, dx, params);

  const auto weights = params.for_reference();
  const at::Tensor ref_out = reference::embed(d, weights, tokens, positions);
  EXPECT_LT(relative_error(out, ref_out), bound(dtype));
  expect_gradients(params, BlockKind::kEmbed, ref_out, weights, dx.to(at::kDouble));
}

TEST_P(Blocks, HeadAgreesWithPlainAutogradForEveryChunk) {
  const at::Tensor x = random_x(5);
  at::Tensor targets = random_tokens({kBatch, kSeq}, d.vocab, 6);
  targets[0][3] = -100;
  targets[2][kSeq - 1] = -100;
  const double scale = 1.0 / 109;
  for (const std::int64_t chunk :
       {std::int64_t{5}, std::int64_t{64}, d.vocab - 1, d.vocab, std::int64_t{100000}}) {
    SCOPED_TRACE(chunk);
    BlockParams params(d, BlockKind::kHead, dtype);
    const at::Tensor dx = poisoned_x();
    const at::Tensor trained = unknown_number(), seen = unknown_number();
    head_train(d, params, x, targets, number(scale), chunk, {}, params, dx, trained);

    const auto weights = params.for_reference();
    const at::Tensor ref_x = x.to(at::kDouble).clone().requires_grad_(true);
    const at::Tensor loss = reference::head(d, weights, ref_x, targets);
    const at::Tensor ref_scale = number(scale);
    EXPECT_NEAR(trained.item<double>() / loss.item<double>(), 1.0,
                dtype == at::kFloat ? 1e-6 : 1e-3);
    head_loss(d, params, x, targets, chunk, seen);
    EXPECT_EQ(seen.item<double>(), trained.item<double>());
    EXPECT_LT(relative_error(dx, torch::autograd::grad({loss}, {ref_x}, {ref_scale},
                                                       /*retain_graph=*/true)[0]),
              bound(dtype));
    expect_gradients(params, BlockKind::kHead, loss, weights, ref_scale);
  }
}

TEST_P(Blocks, AMicroBatchWithoutTargetsHasNoLossAndNoGradient) {
  BlockParams params(d, BlockKind::kHead, dtype);
  const at::Tensor targets =
      at::full({kBatch, kSeq}, -100, at::TensorOptions(at::kLong).device(device()));
  const at::Tensor dx = poisoned_x();
  const at::Tensor loss = unknown_number();
  head_train(d, params, random_x(5), targets, number(1.0), 50, {}, params, dx, loss);
  EXPECT_EQ(loss.item<double>(), 0.0);
  EXPECT_EQ(dx.abs().max().item<double>(), 0.0);
  for (const auto& [role, gradient] : params.gradients()) {
    EXPECT_EQ(gradient.abs().max().item<double>(), 0.0) << static_cast<int>(role);
  }
}

std::string name_of(const ::testing::TestParamInfo<Blocks::ParamType>& info) {
  return std::get<0>(info.param) + (std::get<1>(info.param) == at::kFloat ? "_fp32" : "_bf16") +
         (std::get<2>(info.param) ? "_documents" : "");
}

INSTANTIATE_TEST_SUITE_P(Decoders, Blocks,
                         ::testing::Combine(::testing::ValuesIn(decoder_names()),
                                            ::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Bool()),
                         name_of);

}  // namespace
}  // namespace sluice::model
