#include "engine/model/host/tiles.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/model/host/isa.h"
#include "engine/model/host/shared_out.h"
#include "every_isa.h"
#include "harness.h"
#include "roundings.h"

namespace sluice::model {
namespace {

using rows::kTile;
using rows::out;

/// [K, N] of its pairs, [K / 2, N, 2].
at::Tensor of_pairs(const at::Tensor& pairs, std::int64_t n) {
  return pairs.view({-1, n, 2}).permute({0, 2, 1}).reshape({-1, n});
}

TEST(Tiles, HoldRowsAsProductsTakeThemAndZerosBehindThem) {
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{37}, kTile}) {
    for (const std::int64_t width : {2, 24, 256}) {
      SCOPED_TRACE(testing::Message() << n << " rows of " << width);
      const at::Tensor wider = random({n, width + 8}, at::kBFloat16, 1);
      const rows::HeadRows given{out<at::BFloat16>(wider), width + 8, n, width};
      const at::Tensor tile = at::zeros({kTile, width}, at::kBFloat16);
      tile.narrow(0, 0, n).copy_(wider.narrow(1, 0, width));
      const auto made = [&](auto make) {
        const at::Tensor to = poisoned({kTile * width}, at::kBFloat16);
        make(given, out<at::BFloat16>(to));
        return to;
      };
      EXPECT_TRUE(same_bits(made(rows::copy_tile).view({kTile, width}), tile));
      const at::Tensor turned = tile.t().contiguous();
      EXPECT_TRUE(same_bits(made(rows::turn_tile).view({width, kTile}), turned));
      EXPECT_TRUE(same_bits(of_pairs(made(rows::pair_rows), width).contiguous(), tile));
      EXPECT_TRUE(same_bits(of_pairs(made(rows::pair_columns), kTile).contiguous(), turned));
    }
  }
}

/// Two tiles of keys, and of queries that see some of the first one and of the second.
class Weights : public ::testing::Test {
 protected:
  static constexpr std::int64_t kKeys = 2 * kTile, kFirstQuery = 70, kFirstKey = 10, kWindow = 75;
  static constexpr float kScale = 0.3F;

  rows::ScoresArgs args() const {
    return {out<float>(scores_), kFirstQuery, kFirstKey, kKeys, kWindow, kScale};
  }
  static at::Tensor seen() {
    const at::Tensor before = at::arange(kTile, at::kDouble).view({1, -1}) + kFirstQuery -
                              (at::arange(kKeys, at::kDouble).view({-1, 1}) + kFirstKey);
    return before.ge(0).logical_and(before.lt(kWindow));
  }
  /// Each is off by the roundings of a score that is scaled and from which another is taken, by
  /// exp's, and by its own in bf16.
  static void expect_near(const at::Tensor& got, const at::Tensor& exact, const at::Tensor& scaled,
                          double roundings_16) {
    const at::Tensor off = (got.to(at::kDouble) - exact).abs();
    const at::Tensor relative = (scaled.abs() * 4 + 8) * 0x1p-24 + roundings_16 * 0x1p-8;
    EXPECT_TRUE((off <= exact.abs() * relative).all().item<bool>())
        << (off / exact.abs()).nan_to_num().max().item<double>();
  }

  const at::Tensor scores_ = random({kKeys, kTile}, at::kFloat, 1) * 10;
  const at::Tensor scaled_ = scores_.to(at::kDouble) * static_cast<double>(kScale);
};

TEST_F(Weights, AreThoseOfSoftmaxBeforeTheyAreDividedOnEveryIsa) {
  const at::Tensor visible = scaled_.masked_fill(seen().logical_not(), -INFINITY);
  const at::Tensor most = std::get<0>(visible.max(0));
  const at::Tensor exact = (visible - most).exp();
  expect_same_bits_on_every_isa([&] {
    const at::Tensor pairs = poisoned({kKeys * kTile}, at::kBFloat16);
    const at::Tensor max = poisoned({kTile}, at::kFloat), sum = poisoned({kTile}, at::kFloat);
    rows::kernels().weigh(args(), out<rows::Bf16>(pairs), out<float>(max), out<float>(sum));
    expect_near(of_pairs(pairs, kTile), exact, scaled_.abs() + most.abs(), 1);
    expect_near(max, most, at::zeros({1}, at::kDouble), 0);
    // Before they are rounded; in the order of the keys.
    expect_near(sum, exact.sum(0), scaled_.abs().amax(0) * 2 + kKeys, 0);
    return std::vector<at::Tensor>{pairs, max, sum};
  });
}

TEST_F(Weights, HaveTheGradientsOfSoftmaxOnEveryIsa) {
  const at::Tensor logsumexp = random({kTile}, at::kFloat, 2),
                   dots = random({kTile}, at::kFloat, 3);
  const at::Tensor dweights = random({kKeys, kTile}, at::kFloat, 4);
  const at::Tensor exact = (scaled_ - logsumexp.to(at::kDouble)).exp() * seen();
  const at::Tensor change = dweights.to(at::kDouble) - dots.to(at::kDouble);
  expect_same_bits_on_every_isa([&] {
    const auto room = [] { return poisoned({kKeys, kTile}, at::kBFloat16); };
    const at::Tensor weights = room(), dscores = room(), pairs = room();
    rows::kernels().weigh_backward({args(), out<float>(dweights), out<float>(logsumexp),
                                    out<float>(dots), out<rows::Bf16>(weights),
                                    out<rows::Bf16>(dscores), out<rows::Bf16>(pairs)});
    const at::Tensor sizes = scaled_.abs() + logsumexp.abs().to(at::kDouble);
    expect_near(weights, exact, sizes, 1);
    expect_near(dscores, exact * change, sizes, 1);
    EXPECT_TRUE(same_bits(of_pairs(pairs.flatten(), kTile).contiguous(), dscores));
    return std::vector<at::Tensor>{weights, dscores, pairs};
  });
}

TEST(Sums, AreRoundedToRowsWhereTheyLieAsRowsOrAsColumnsOnEveryIsa) {
  constexpr std::int64_t kRows = 37, kWidth = 24, kStep = 30;
  const at::Tensor sums = random({kRows, kWidth}, at::kFloat, 1);
  const at::Tensor columns = at::zeros({kWidth, kTile}, at::kFloat);
  columns.narrow(1, 0, kRows).copy_(sums.t());
  const at::Tensor by = random({kTile}, at::kFloat, 2);
  expect_same_bits_on_every_isa([&] {
    const at::Tensor of_rows = poisoned({kRows, kStep}, at::kBFloat16);
    const at::Tensor of_columns = poisoned({kRows, kStep}, at::kBFloat16);
    const auto to = [&](const at::Tensor& t, const at::Tensor& from) {
      return rows::RoundArgs{out<float>(from), kRows, kWidth, out<rows::Bf16>(t), kStep};
    };
    rows::kernels().round_rows(to(of_rows, sums), 0.3F);
    rows::kernels().round_columns(to(of_columns, columns), out<float>(by));
    const at::Tensor rest = poisoned({kRows, kStep - kWidth}, at::kBFloat16);
    const auto expected = [&](const at::Tensor& values) {
      return at::cat({values.to(at::kBFloat16), rest}, 1);
    };
    EXPECT_TRUE(same_bits(of_rows, expected(sums * 0.3F)));
    EXPECT_TRUE(same_bits(of_columns, expected(sums * by.narrow(0, 0, kRows).unsqueeze(1))));
    return std::vector<at::Tensor>{of_rows, of_columns};
  });
}

TEST(Dots, AreSumsOfProductsOfRowsOnEveryIsa) {
  constexpr std::int64_t kRows = 5, kWidth = 200, kStep = 210;
  const at::Tensor a = random({kRows, kStep}, at::kBFloat16, 1);
  const at::Tensor b = random({kRows, kStep}, at::kBFloat16, 2);
  const auto terms = (a.to(at::kDouble) * b.to(at::kDouble)).narrow(1, 0, kWidth);
  expect_same_bits_on_every_isa([&] {
    const at::Tensor dots = poisoned({kRows}, at::kFloat);
    rows::kernels().dot_rows(out<rows::Bf16>(a), kStep, out<rows::Bf16>(b), kStep, kRows, kWidth,
                             out<float>(dots));
    // Products of bf16 are exact in fp32.
    expect_within(dots, terms.sum(1), kWidth, terms.abs().sum(1));
    return std::vector<at::Tensor>{dots};
  });
}

}  // namespace
}  // namespace sluice::model
