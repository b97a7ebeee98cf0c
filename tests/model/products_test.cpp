#include "engine/model/products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <tuple>

#include "engine/base/error.h"
#include "engine/tensor/instructions.h"
#include "engine/tensor/view.h"
#include "harness.h"
#include "roundings.h"
#include "threads.h"

namespace sluice::model {
namespace {

struct Sizes {
  std::int64_t m, k, n;
};
std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << s.m << " x " << s.k << " x " << s.n;
}

enum class Lies { kAsIs, kTransposed };
enum class Bias { kNone, kThere };

class WidenedProducts
    : public ::testing::TestWithParam<std::tuple<Sizes, at::ScalarType, Lies, Bias>> {
 protected:
  at::Tensor factor(std::int64_t rows, std::int64_t columns, std::uint64_t seed) const {
    return lies_ == Lies::kAsIs ? random({rows, columns}, dtype_, seed)
                                : random({columns, rows}, dtype_, seed).t();
  }

  const Sizes sizes_ = std::get<0>(GetParam());
  const at::ScalarType dtype_ = std::get<1>(GetParam());
  const Lies lies_ = std::get<2>(GetParam());
  const Bias bias_ = std::get<3>(GetParam());
};

// Each factor is exact in fp32. A sum of k products and a bias in any order is off by k + 1
// roundings at most, of what its terms add up to without their signs; then it is rounded once. The
// order is that of a number of threads.
TEST_P(WidenedProducts, AreRoundedOnce) {
  const at::Tensor a = factor(sizes_.m, sizes_.k, 1), b = factor(sizes_.k, sizes_.n, 2);
  at::Tensor bias;
  at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  at::Tensor terms = at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs());
  if (bias_ == Bias::kThere) {
    bias = random({sizes_.n}, dtype_, 3);
    exact = exact + bias.to(at::kDouble);
    terms = terms + bias.to(at::kDouble).abs();
  }
  // A part of a wider one, as columns of a projection are.
  const at::Tensor wider = poisoned({sizes_.m, sizes_.n + 3}, dtype_);
  const at::Tensor out = wider.narrow(1, 1, sizes_.n);
  for_threads({1, 2, 3, 4}, [&] {
    out.fill_(NAN);
    widened_product_to(out, a, b, bias);
    expect_within(out, exact, static_cast<double>(sizes_.k + 1), terms);
    const at::Tensor again = poisoned({sizes_.m, sizes_.n}, dtype_);
    widened_product_to(again, a, b, bias);
    EXPECT_TRUE(same_bits(again, out.contiguous()));
  });
  EXPECT_TRUE(wider.select(1, 0).isnan().all().item<bool>());
  EXPECT_TRUE(wider.narrow(1, sizes_.n + 1, 2).isnan().all().item<bool>());
}

// Within one tile, and beyond one in each direction.
INSTANTIATE_TEST_SUITE_P(
    Shapes, WidenedProducts,
    ::testing::Combine(::testing::Values(Sizes{3, 5, 7}, Sizes{1030, 40, 50}, Sizes{40, 2100, 50},
                                         Sizes{40, 50, 2060}, Sizes{1025, 2049, 1025}),
                       ::testing::Values(at::kBFloat16, at::kHalf),
                       ::testing::Values(Lies::kAsIs, Lies::kTransposed),
                       ::testing::Values(Bias::kNone, Bias::kThere)));

TEST(WidenedProducts, NeedSizesThatAgree) {
  const at::Tensor a = random({3, 5}, at::kHalf, 1), b = random({6, 7}, at::kHalf, 2);
  EXPECT_THROW(widened_product_to(poisoned({3, 7}, at::kHalf), a, b), Error);
}

TEST(Products, AreWidenedWhereTheProcessorHasNoneOfTheirOwn) {
  EXPECT_FALSE(is_widened(at::empty({1, 1}, at::kFloat)));
  for (const DType type : {DType::kBf16, DType::kF16}) {
    const at::ScalarType dtype = tensor::scalar_type(type);
    const at::Tensor a = random({33, 65}, dtype, 1), b = random({65, 17}, dtype, 2);
    const bool lacking = tensor::lacks_products(type, tensor::code_paths()).has_value();
    EXPECT_EQ(is_widened(a), lacking) << dtype;
    if (!lacking) continue;
    const at::Tensor out = poisoned({33, 17}, dtype);
    widened_product_to(out, a, b);
    EXPECT_TRUE(same_bits(product(a, b), out)) << dtype;
  }
}

// Whichever way they go here; LibTorch may round a product in 16 bits before it adds the bias.
TEST(Products, AreThoseOfTheirFactors) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor a = random({33, 65}, dtype, 1), b = random({65, 17}, dtype, 2);
    const at::Tensor bias = random({17}, dtype, 3), wide_bias = bias.to(at::kDouble);
    const at::Tensor plain = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    const at::Tensor off =
        at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs()) * (65 * unit(at::kFloat));
    const double once_more = dtype == at::kFloat ? unit(dtype) : 2 * unit(dtype);
    for_threads({1, 2, 3, 4}, [&] { expect_within(product(a, b), plain, off); });
    expect_within(product(a, b, bias), plain + wide_bias,
                  off + (plain.abs() + wide_bias.abs()) * once_more);
    EXPECT_EQ(product(a, b).scalar_type(), dtype);
    const at::Tensor out = poisoned({33, 17}, dtype);
    product_to(out, a, b, bias);
    EXPECT_TRUE(same_bits(out, product(a, b, bias)));
  }
}

}  // namespace
}  // namespace sluice::model
