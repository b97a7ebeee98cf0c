// What a layer needs beyond its buffers, when its MLP takes some tokens at a time.
#include <gtest/gtest.h>

#include <tuple>

#include "engine/base/units.h"
#include "engine/model/blocks.h"
#include "engine/tensor/allocator.h"
#include "engine/tensor/workspace.h"
#include "harness.h"

namespace sluice::model {
namespace {

constexpr std::int64_t kTokens = 1024, kWide = 2400;

class MlpChunk : public ::testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {
 protected:
  MlpChunk() { d_.intermediate = kWide; }
  static void SetUpTestSuite() { tensor::install_allocator(); }

  Bytes of_backward(std::int64_t chunk) const {
    const std::vector<std::int64_t> sizes{1, kTokens, d_.hidden};
    BlockParams params(d_, shape::BlockKind::kLayer, dtype_);
    const at::Tensor x = random(sizes, dtype_, 1), dy = random(sizes, dtype_, 2);
    const at::Tensor dx = poisoned(sizes, dtype_);
    const Places places = places_of(plain_positions(1, kTokens));
    tensor::Workspace workspace = tensor::Workspace::measuring(1_GiB);
    tensor::OpScope scope(workspace, "backward");
    layer_backward(d_, params, places, x, dy, chunk, params, dx);
    scope.close();
    return workspace.peak().main;
  }

  shape::Decoder d_ = decoder_named(std::get<0>(GetParam()));
  const at::ScalarType dtype_ = std::get<1>(GetParam());
};

// At its peak a backward has gate, up, their product and its gradient: of a chunk instead of all
// tokens. There instead: sums of weight gradients, a part of one, the gradient of the input, and
// gaps that these leave.
TEST_P(MlpChunk, TheWorkspaceHasTheIntermediateWidthForOneChunk) {
  constexpr std::int64_t kChunk = 128;
  const auto elem = static_cast<std::int64_t>(c10::elementSize(dtype_));
  const std::int64_t tensors = d_.mlp == shape::Mlp::kGated ? 4 : 3;
  const std::int64_t less = tensors * (kTokens - kChunk) * kWide * elem;
  const std::int64_t more = 3 * d_.hidden * kWide * (4 + elem) + 2 * kTokens * d_.hidden * elem;
  const auto whole = static_cast<std::int64_t>(of_backward(kTokens));
  const auto part = static_cast<std::int64_t>(of_backward(kChunk));
  // Where products of bf16 are made in fp32, still more of it.
  if (dtype_ == at::kFloat) {
    EXPECT_LE(whole - part, less);
  }
  EXPECT_GE(whole - part, less - more);
  EXPECT_GT(less, 4 * more) << "nothing would be seen";
}

INSTANTIATE_TEST_SUITE_P(Decoders, MlpChunk,
                         ::testing::Combine(::testing::Values("llama", "gpt2"),
                                            ::testing::Values(at::kFloat, at::kBFloat16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == at::kFloat ? "_fp32" : "_bf16");
                         });

}  // namespace
}  // namespace sluice::model
