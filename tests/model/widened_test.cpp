#include "engine/model/host/widened.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include "attention_oracle.h"
#include "harness.h"
#include "threads.h"

namespace sluice::model {
namespace {

class Widened : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
 protected:
  static constexpr std::int64_t kSequences = 2, kHeads = 6, kKvHeads = 3, kTokens = 100, kDim = 16;

  Heads backward(std::int64_t at_once) const {
    return widened_backward(heads_, looked_, dout_, at_once, mask_);
  }
  at::Tensor to_heads(std::int64_t heads, std::uint64_t seed) const {
    // As the projections leave them.
    return random({kSequences, kTokens, heads, kDim}, dtype_, seed).transpose(1, 2);
  }

  const at::ScalarType dtype_ = std::get<0>(GetParam());
  const Heads heads_{to_heads(kHeads, 1), to_heads(kKvHeads, 2), to_heads(kKvHeads, 3)};
  const at::Tensor dout_ = to_heads(kHeads, 4);
  // A mask that says what causal does.
  const std::optional<at::Tensor> mask_ =
      std::get<1>(GetParam())
          ? std::optional(at::ones({kTokens, kTokens}, heads_.q.options()).tril_().log_())
          : std::nullopt;
  const Looked looked_ = look(heads_, 0);
};

TEST_P(Widened, GradientsAreThoseOfAllScoresAtOnceForEveryNumberOfThreads) {
  const ExactAttention exact = exact_attention(heads_, dout_, 0, {});
  for_threads({1, 2, 3, 4}, [&] { expect_within(looked_, backward(kHeads), exact); });
}

TEST_P(Widened, BitsDoNotDependOnHowManyHeadsGoAtOnceForEveryNumberOfThreads) {
  for_threads({1, 2, 3, 4}, [&] {
    const Heads all = backward(kHeads);
    for (const std::int64_t at_once : {1, 2, 3, 4, 5, 6, 100}) {
      const Heads some = backward(at_once);
      EXPECT_TRUE(same_bits(some.q.contiguous(), all.q.contiguous())) << at_once;
      EXPECT_TRUE(same_bits(some.k.contiguous(), all.k.contiguous())) << at_once;
      EXPECT_TRUE(same_bits(some.v.contiguous(), all.v.contiguous())) << at_once;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Widened,
                         ::testing::Combine(::testing::Values(at::kBFloat16, at::kHalf),
                                            ::testing::Bool()));

}  // namespace
}  // namespace sluice::model
