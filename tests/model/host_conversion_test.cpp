// How the host's kernels for rows read and write 16 bits, over all of their values and around all
// their ties, beside LibTorch's conversions, on every instruction set.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/model/host/isa.h"
#include "engine/model/host/rows.h"
#include "engine/model/host/shared_out.h"
#include "every_isa.h"
#include "harness.h"

namespace sluice::model {
namespace {

/// One row with every value of a type of 16 bits, in order of their bits.
at::Tensor every_value(at::ScalarType dtype) {
  return at::arange(-(1 << 15), 1 << 15).to(at::kShort).view(dtype).view({1, -1});
}

/// Floats whose lowest bits are each of these, behind every pattern of the others.
at::Tensor with_lowest(std::int64_t bits, at::IntArrayRef lowest) {
  const std::int64_t half = std::int64_t{1} << (31 - bits);
  const at::Tensor highest = at::arange(-half, half).mul(std::int64_t{1} << bits).view({-1, 1});
  return (highest + at::tensor(lowest, at::kLong)).to(at::kInt).view(at::kFloat).view({-1});
}

/// Every value of 16 bits, every tie between two, infinities and NaN, and the floats beside these.
at::Tensor floats_around_ties() {
  const at::Tensor of_bf16 = with_lowest(16, {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff});
  const at::Tensor of_fp16 = with_lowest(13, {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff});
  const at::Tensor small = (at::arange(1 << 10, at::kFloat) + 0.5) * 0x1p-24;  // below normal fp16
  const at::Tensor near =
      at::cat({small, small.nextafter(at::zeros({})), small.nextafter(at::ones({}))});
  return at::cat({of_bf16, of_fp16, near, -near});
}

// The sum of one row in fp32, which begins with 0: only of -0 it does not keep the sign.
TEST(HostConversions, Every16BitsAreReadAsTheyAre) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor narrow = every_value(dtype);
    const at::Tensor exact = at::zeros({}) + narrow.to(at::kFloat);
    on_every_isa({1}, [&] {
      const at::Tensor sum = poisoned(narrow.sizes(), at::kFloat);
      rows::kernels().sum_rows(rows::elem_of(narrow), rows::in(narrow), narrow.numel(),
                               rows::out<float>(sum), {0, 1});
      EXPECT_TRUE(same_bits_but_of_nan(sum, exact)) << dtype;
    });
  }
}

// With -0 added, which changes nothing.
TEST(HostConversions, Every16BitsAreWrittenAsTheyWereRead) {
  const std::int64_t first = 0;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor narrow = every_value(dtype), nothing = at::full_like(narrow, -0.0);
    on_every_isa({1}, [&] {
      const at::Tensor copy = poisoned(narrow.sizes(), dtype);
      rows::kernels().look_up(
          rows::elem_of(copy),
          {rows::in(narrow), rows::in(nothing), &first, &first, rows::out(copy), narrow.numel()},
          {0, 1});
      EXPECT_TRUE(same_bits_but_of_nan(copy, narrow)) << dtype;
    });
  }
}

TEST(HostConversions, FloatsAreRoundedToNearestEven) {
  const at::Tensor floats = floats_around_ties();
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor rounded = floats.to(dtype);
    on_every_isa({1}, [&] {
      const at::Tensor got = poisoned(floats.sizes(), dtype);
      rows::kernels().fold(rows::elem_of(got), rows::in<float>(floats), 1, floats.numel(),
                           rows::out(got), {0, floats.numel()});
      EXPECT_TRUE(same_bits_but_of_nan(got, rounded)) << dtype;
    });
  }
}

}  // namespace
}  // namespace sluice::model
