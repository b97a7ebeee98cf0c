#include "engine/model/host/tiled.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <exception>
#include <limits>
#include <ostream>
#include <vector>

#include "attention_oracle.h"
#include "engine/base/error.h"
#include "engine/tensor/instructions.h"
#include "engine/tensor/process.h"
#include "every_isa.h"
#include "harness.h"
#include "threads.h"

namespace sluice::model {
namespace {

struct Case {
  std::int64_t seq, window, heads, kv_heads, dim;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "window " << c.window << " of " << c.seq << ", " << c.heads << " heads, "
             << c.kv_heads << " of keys, of " << c.dim;
}

constexpr std::int64_t kSequences = 2;

/// As a fused projection leaves them: a part of each token's values.
at::Tensor to_heads(const Case& c, std::int64_t heads, std::uint64_t seed) {
  return random({kSequences, c.seq, 3, heads, c.dim}, at::kBFloat16, seed)
      .select(2, 1)
      .transpose(1, 2);
}

struct Given {
  explicit Given(const Case& c)
      : heads{to_heads(c, c.heads, 1), to_heads(c, c.kv_heads, 2), to_heads(c, c.kv_heads, 3)},
        dout(to_heads(c, c.heads, 4)) {}
  Heads heads;
  at::Tensor dout;
};

std::vector<at::Tensor> both_ways(const Given& given, std::int64_t window) {
  const Looked looked = tiled_look(given.heads, window);
  const Heads d = tiled_look_backward(given.heads, looked, given.dout, window);
  std::vector<at::Tensor> all;
  for (const at::Tensor& t : {looked.out, looked.logsumexp, d.q, d.k, d.v}) {
    all.push_back(t.contiguous());
  }
  return all;
}

/// oneDNN refuses small products of bf16 where it may not use instructions for them.
bool is_possible() {
  static const bool possible = [] {
    try {
      both_ways(Given({1, 0, 1, 1, 2}), 0);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }();
  return possible;
}

class Tiled : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!is_possible()) GTEST_SKIP() << "this processor has no instructions for bf16";
  }
};

TEST_P(Tiled, AgreesWithAllScoresAtOnceAndWithItselfOnEveryIsaForEveryNumberOfThreads) {
  const Case& c = GetParam();
  const Given given(c);
  // Only what is multiplied is rounded on the way.
  const ExactAttention exact = exact_attention(given.heads, given.dout, c.window,
                                               {.factors = 1, .query_sums = 0, .key_sums = 0});
  const std::vector<at::Tensor> first = both_ways(given, c.window);
  expect_within({first[0], first[1]}, {first[2], first[3], first[4]}, exact);
  expect_same_bits_on_every_isa([&] {
    const std::vector<at::Tensor> again = both_ways(given, c.window);
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(same_bits(again[i], first[i])) << i;
    return again;
  });
}

// One tile and several, whole ones and a rest; a window within a tile, that ends with one, and over
// some, and over more than there is; heads that share keys; a width that is no multiple of a
// register's, and the widest.
INSTANTIATE_TEST_SUITE_P(Sizes, Tiled,
                         testing::Values(Case{1, 0, 2, 2, 64}, Case{2, 0, 2, 1, 64},
                                         Case{64, 0, 2, 2, 64}, Case{65, 0, 2, 2, 64},
                                         Case{256, 0, 4, 4, 64}, Case{300, 0, 6, 2, 24},
                                         Case{300, 1, 2, 1, 24}, Case{300, 40, 2, 2, 64},
                                         Case{300, 64, 2, 2, 64}, Case{300, 65, 2, 2, 64},
                                         Case{300, 200, 4, 2, 128}, Case{300, 300, 2, 2, 64},
                                         Case{65, 1000, 2, 2, 64}, Case{1, 40, 2, 2, 64},
                                         Case{100, 0, 1, 1, 256}, Case{700, 0, 3, 1, 2}));

class TiledNumbers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_possible()) GTEST_SKIP() << "this processor has no instructions for bf16";
  }
};

// Each score is 200 more, whose exp is no number of fp32.
TEST_F(TiledNumbers, AreThoseOfLargeScoresToo) {
  const Case c{130, 0, 2, 2, 64};
  Given given(c);
  given.heads.q.select(3, 0).fill_(40);
  given.heads.k.select(3, 0).fill_(40);
  const ExactAttention exact = exact_attention(given.heads, given.dout, 0, {.factors = 1});
  const std::vector<at::Tensor> got = both_ways(given, 0);
  expect_within({got[0], got[1]}, {got[2], got[3], got[4]}, exact);
}

TEST_F(TiledNumbers, ThatAreNoneReachAllWhoSeeThemAndNobodyBeforeTheirTile) {
  constexpr std::int64_t kSeq = 130, kAt = 70, kTileBegin = 64;
  for (const bool of_keys : {true, false}) {
    SCOPED_TRACE(of_keys ? "a key" : "a value");
    Given given({kSeq, 0, 1, 1, 64});
    (of_keys ? given.heads.k : given.heads.v)
        .select(2, kAt)
        .fill_(std::numeric_limits<double>::quiet_NaN());
    const std::vector<at::Tensor> got = both_ways(given, 0);
    const at::Tensor &out = got[0], &dq = got[2], &dk = got[3], &dv = got[4];
    for (const at::Tensor& of_queries : {out, dq}) {
      const at::Tensor none = of_queries.isnan();
      EXPECT_FALSE(none.narrow(2, 0, kTileBegin).any().item<bool>());
      EXPECT_TRUE(none.narrow(2, kAt, kSeq - kAt).all().item<bool>());
    }
    EXPECT_TRUE(dk.isnan().all().item<bool>()) << "all are seen by a query that has none";
    EXPECT_EQ(dv.isnan().all().item<bool>(), of_keys) << "weights do not depend on values";
  }
}

TEST_F(TiledNumbers, OfAQueryThatFindsAllScoresInfinitelySmallAreNone) {
  Given given({70, 0, 1, 1, 64});
  given.heads.q.fill_(3e38);
  given.heads.k.fill_(-3e38);
  const std::vector<at::Tensor> got = both_ways(given, 0);
  EXPECT_TRUE(got[0].isnan().all().item<bool>());
  EXPECT_TRUE(got[1].isnan().all().item<bool>());
}

Heads empty_heads(const Case& c, at::ScalarType dtype) {
  const auto of = [&](std::int64_t heads) {
    return at::empty({kSequences, heads, c.seq, c.dim}, dtype);
  };
  return {of(c.heads), of(c.kv_heads), of(c.kv_heads)};
}

TEST(IsTiled, WhereOnlyOneDnnMultipliesAndHeadsAreEnoughOfAWidthThatItTakes) {
  const auto tiled = [](const Case& c, at::ScalarType dtype = at::kBFloat16) {
    return is_tiled(empty_heads(c, dtype));
  };
  const bool here = tensor::only_onednn_multiplies_bf16(tensor::code_paths());
  EXPECT_TRUE(is_possible() || !here);
  for_threads({4}, [&] {
    EXPECT_EQ(tiled({64, 0, 4, 2, 256}), here);
    EXPECT_EQ(tiled({1, 0, 4, 2, 2}), here);
    EXPECT_EQ(tiled({20000, 0, 4, 2, 64}), here);
    EXPECT_FALSE(tiled({64, 0, 4, 1, 64}));
    EXPECT_FALSE(tiled({64, 0, 4, 2, 65}));
    EXPECT_FALSE(tiled({64, 0, 4, 2, 258}));
    EXPECT_FALSE(tiled({64, 0, 4, 2, 64}, at::kFloat));
    EXPECT_FALSE(tiled({64, 0, 4, 2, 64}, at::kHalf));
  });
}

TEST(IsTiled, HeadsGoThatWay) {
  const Case c{100, 0, 4, 2, 64};
  const Given given(c);
  for_threads({1, 4}, [&] {
    if (!is_tiled(given.heads)) GTEST_SKIP() << "not on this processor";
    const Looked looked = look(given.heads, 30);
    const Heads d = look_backward(given.heads, looked, given.dout, 30);
    const std::vector<at::Tensor> tiled = both_ways(given, 30);
    EXPECT_TRUE(same_bits(looked.out.contiguous(), tiled[0]));
    EXPECT_TRUE(same_bits(d.k.contiguous(), tiled[3]));
  });
}

TEST(IsTiled, OtherWidthsAreRefused) {
  const Heads odd = empty_heads({64, 0, 2, 2, 65}, at::kBFloat16);
  EXPECT_THROW(tiled_look(odd, 0), Error);
}

}  // namespace
}  // namespace sluice::model
