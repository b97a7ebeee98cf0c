#include "engine/model/kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <tuple>
#include <vector>

#include "attention_oracle.h"
#include "engine/model/products.h"
#include "harness.h"
#include "tests/support/extent.h"
#include "threads.h"

namespace sluice::model {
namespace {

constexpr std::int64_t kSequences = 2, kHeads = 4, kKvHeads = 2;
// The root of the first is no power of two; LibTorch packs the second where a processor can.
constexpr std::int64_t kDim = 24, kPackedDim = 64;

struct Tokens {
  std::int64_t seq, window, kv_heads = kKvHeads, dim = kDim;
};
std::ostream& operator<<(std::ostream& out, const Tokens& t) {
  return out << "window " << t.window << " of " << t.seq << ", " << t.kv_heads << " kv heads of "
             << t.dim;
}

Heads random_heads(const Tokens& t, at::ScalarType dtype) {
  return {random({kSequences, kHeads, t.seq, t.dim}, dtype, 1),
          random({kSequences, t.kv_heads, t.seq, t.dim}, dtype, 2),
          random({kSequences, t.kv_heads, t.seq, t.dim}, dtype, 3)};
}

/// Steps in which LibTorch's way back takes so many queries of a head.
std::int64_t steps_of(std::int64_t queries) {
  const std::int64_t at_a_time = queries >= 768 ? 256 : queries >= 192 ? 64 : 32;
  return (queries + at_a_time - 1) / at_a_time;
}

/// What the backend's kernel rounds to 16 bits on the way back. LibTorch's adds each step, and each
/// 512 keys, to a gradient where that lies, for each head that shares a key. A window is cut into
/// blocks of 256 keys, each with heads of its own, and its last keys, and what comes of them is
/// rounded once more.
Narrow narrow_of(const Heads& heads, std::int64_t window) {
  const std::int64_t seq = heads.q.size(2), group = heads.q.size(1) / heads.k.size(1);
  if (heads.q.scalar_type() == at::kFloat) return {};
  const bool is_cut = window > 0 && window < seq;
  const std::int64_t more = is_cut ? 1 : 0;
  if (is_widened(heads.q)) return {0, more, more};
  const std::int64_t of_queries = seq / 512 + 1;
  const std::int64_t of_keys =
      is_cut ? std::max(steps_of(window + std::min<std::int64_t>(256, seq - window)),
                        group * steps_of(window))
             : group * steps_of(seq);
  return {1, of_queries + more, of_keys + more};
}

struct Results {
  Looked looked;
  Heads gradients;
};
Results both_ways(const Heads& heads, const at::Tensor& dout, std::int64_t window) {
  const Looked looked = look(heads, window);
  return {looked, look_backward(heads, looked, dout, window)};
}
bool same(const Results& a, const Results& b) {
  const auto same_tensor = [](const at::Tensor& one, const at::Tensor& other) {
    return same_bits(one.contiguous(), other.contiguous());
  };
  return same_tensor(a.looked.out, b.looked.out) &&
         same_tensor(a.looked.logsumexp, b.looked.logsumexp) &&
         same_tensor(a.gradients.q, b.gradients.q) && same_tensor(a.gradients.k, b.gradients.k) &&
         same_tensor(a.gradients.v, b.gradients.v);
}

class Windows : public ::testing::TestWithParam<std::tuple<Tokens, at::ScalarType>> {
 protected:
  const Tokens tokens_ = std::get<0>(GetParam());
  const at::ScalarType dtype_ = std::get<1>(GetParam());
  const Heads heads_ = random_heads(tokens_, dtype_);
  const at::Tensor dout_ = random(heads_.q.sizes(), dtype_, 4);
};

// A processor has the same bits again, too; a device where it is asked to, as a session does.
TEST_P(Windows, AgreeWithAllScoresAtOnceForEveryNumberOfThreads) {
  const ExactAttention exact =
      exact_attention(heads_, dout_, tokens_.window, narrow_of(heads_, tokens_.window));
  for_threads({1, 2, 3, 4}, [&] {
    const Results got = both_ways(heads_, dout_, tokens_.window);
    expect_within(got.looked, got.gradients, exact);
    if (!device().is_cpu()) return;
    EXPECT_TRUE(same(got, both_ways(heads_, dout_, tokens_.window)));
  });
}

std::vector<at::ScalarType> types() {
  std::vector<at::ScalarType> some{at::kBFloat16, at::kFloat, at::kHalf};
  some.resize(test::by_extent(3, 3, 1));
  return some;
}

// The long ones are several blocks of queries and of keys, with a rest that is shorter or none
// (332).
INSTANTIATE_TEST_SUITE_P(
    Sizes, Windows,
    testing::Combine(testing::Values(Tokens{300, 0}, Tokens{300, 1}, Tokens{300, 2},
                                     Tokens{300, 40}, Tokens{300, 128}, Tokens{300, 172},
                                     Tokens{300, 299}, Tokens{300, 300}, Tokens{800, 0},
                                     Tokens{300, 0, kHeads, kPackedDim}, Tokens{1100, 1},
                                     Tokens{1100, 3}, Tokens{1100, 257}, Tokens{1100, 332},
                                     Tokens{1100, 700}, Tokens{1100, 257, kHeads}),
                     testing::ValuesIn(types())));

TEST(Windows, OfAllTokensAreNone) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Heads heads = random_heads({300, 0}, dtype);
    const at::Tensor of_all = look(heads, 300).out.contiguous();
    EXPECT_TRUE(same_bits(of_all, look(heads, 0).out.contiguous())) << dtype;
  }
}

class OfDocuments : public ::testing::TestWithParam<std::tuple<std::int64_t, at::ScalarType>> {};

TEST_P(OfDocuments, AgreeWithAllScoresOfEachAlone) {
  const auto& [window, dtype] = GetParam();
  constexpr std::int64_t kSeq = 300;
  const Heads heads = random_heads({kSeq, window}, dtype);
  const at::Tensor dout = random(heads.q.sizes(), dtype, 4);
  const Documents documents = places_of(document_positions(kSequences, kSeq)).documents;
  ASSERT_GT(documents.all.size(), std::size_t{2 * kSequences});
  const auto part = [](const at::Tensor& t, const Document& d) {
    return t.narrow(0, d.row, 1).narrow(2, d.begin, d.tokens);
  };
  std::vector<ExactAttention> exact;
  for (const Document& d : documents.all) {
    const Heads one{part(heads.q, d), part(heads.k, d), part(heads.v, d)};
    exact.push_back(exact_attention(one, part(dout, d), window, narrow_of(one, window)));
  }
  for_threads({1, 2, 3, 4}, [&] {
    const Looked looked = look(heads, documents, window);
    const Heads gradients = look_backward(heads, looked, dout, documents, window);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const Document& d = documents.all[i];
      SCOPED_TRACE(testing::Message() << "row " << d.row << ", from " << d.begin);
      expect_within({part(looked.out, d), part(looked.logsumexp, d)},
                    {part(gradients.q, d), part(gradients.k, d), part(gradients.v, d)}, exact[i]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, OfDocuments,
                         testing::Combine(testing::Values(0, 40), testing::ValuesIn(types())));

}  // namespace
}  // namespace sluice::model
