#include "engine/model/kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <ostream>
#include <tuple>

#include "attention_oracle.h"
#include "engine/model/products.h"
#include "harness.h"
#include "threads.h"

namespace sluice::model {
namespace {

constexpr std::int64_t kSequences = 2, kHeads = 4, kKvHeads = 2, kDim = 16;

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

/// What the backend's kernel rounds to 16 bits on the way back. LibTorch's adds each of its own
/// steps to a gradient where that lies: 512 keys, and 32 queries of a head, 64 from 192 on and 256
/// from 768 on, so twelve for each head that shares a key. Blocks of a window are rounded once
/// more.
Narrow narrow_of(const Heads& heads, std::int64_t window) {
  const std::int64_t seq = heads.q.size(2), group = heads.q.size(1) / heads.k.size(1);
  if (heads.q.scalar_type() == at::kFloat) return {};
  const double blocks = window > 0 && window < seq ? 1 : 0;
  if (is_widened(heads.q)) return {0, blocks, blocks};
  return {1, static_cast<double>(seq / 512 + 1) + blocks, static_cast<double>(12 * group) + blocks};
}

struct Results {
  Looked looked;
  Heads gradients;
};
Results both_ways(const Heads& heads, const at::Tensor& dout, std::int64_t window) {
  const Looked looked = look(heads, window);
  return {looked, look_backward(heads, looked, dout, window)};
}
bool same_bits(const Results& a, const Results& b) {
  const auto same = [](const at::Tensor& one, const at::Tensor& other) {
    return model::same_bits(one.contiguous(), other.contiguous());
  };
  return same(a.looked.out, b.looked.out) && same(a.looked.logsumexp, b.looked.logsumexp) &&
         same(a.gradients.q, b.gradients.q) && same(a.gradients.k, b.gradients.k) &&
         same(a.gradients.v, b.gradients.v);
}

class Windows : public ::testing::TestWithParam<std::tuple<Tokens, at::ScalarType>> {
 protected:
  const Tokens tokens_ = std::get<0>(GetParam());
  const at::ScalarType dtype_ = std::get<1>(GetParam());
  const Heads heads_ = random_heads(tokens_.seq, dtype_, tokens_.kv_heads);
  const at::Tensor dout_ = random({kSequences, kHeads, tokens_.seq, kDim}, dtype_, 4);
};

// And have the same bits again.
TEST_P(Windows, AgreeWithAllScoresAtOnceForEveryNumberOfThreads) {
  const ExactAttention exact =
      exact_attention(heads_, dout_, tokens_.window, narrow_of(heads_, tokens_.window));
  for_threads({1, 2, 3, 4}, [&] {
    const Results got = both_ways(heads_, dout_, tokens_.window);
    expect_within(got.looked, got.gradients, exact);
    EXPECT_TRUE(same_bits(got, both_ways(heads_, dout_, tokens_.window)));
  });
}

// The long ones are several blocks of queries and of keys, with a rest that is shorter or none
// (332).
INSTANTIATE_TEST_SUITE_P(
    Sizes, Windows,
    testing::Combine(testing::Values(Tokens{300, 0}, Tokens{300, 1}, Tokens{300, 2},
                                     Tokens{300, 40}, Tokens{300, 128}, Tokens{300, 172},
                                     Tokens{300, 299}, Tokens{300, 300}, Tokens{1100, 1},
                                     Tokens{1100, 3}, Tokens{1100, 257}, Tokens{1100, 332},
                                     Tokens{1100, 700}, Tokens{1100, 257, kHeads}),
                     testing::Values(at::kFloat, at::kBFloat16, at::kHalf)));

TEST(Windows, OfAllTokensAreNone) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Heads heads = random_heads(300, dtype);
    const at::Tensor of_all = look(heads, 300).out.contiguous();
    EXPECT_TRUE(model::same_bits(of_all, look(heads, 0).out.contiguous())) << dtype;
  }
}

}  // namespace
}  // namespace sluice::model
