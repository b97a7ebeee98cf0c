#include "roundings.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice::model {

double unit(at::ScalarType dtype) {
  if (dtype == at::kFloat) return std::ldexp(1.0, -24);
  return std::ldexp(1.0, dtype == at::kHalf ? -11 : -8);
}

double least_unit(at::ScalarType dtype) {
  return dtype == at::kHalf ? std::ldexp(1.0, -25) : 0;
}

void expect_within(const at::Tensor& got, const at::Tensor& exact, const at::Tensor& allowed) {
  const at::Tensor off = (got.to(at::kDouble) - exact).abs();
  const at::ScalarType dtype = got.scalar_type();
  const at::Tensor most = dtype == at::kFloat
                              ? allowed
                              : allowed + (exact.abs() + allowed) * unit(dtype) + least_unit(dtype);
  EXPECT_TRUE((off <= most).all().item<bool>())
      << "off by " << (off / most).max().item<double>() << " of what is allowed";
}

void expect_within(const at::Tensor& got, const at::Tensor& exact, double roundings,
                   const at::Tensor& made_of) {
  expect_within(got, exact, made_of.abs() * (roundings * unit(at::kFloat)));
}

}  // namespace sluice::model
