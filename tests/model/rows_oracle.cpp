#include "rows_oracle.h"

#include <ATen/ATen.h>

namespace sluice::model {
namespace {

at::Tensor mean_of(const at::Tensor& t) {
  return t.mean({1}, /*keepdim=*/true);
}

}  // namespace

NormCase NormCase::to(at::ScalarType dtype, at::ScalarType dy_dtype) const {
  const auto narrow = [=](const at::Tensor& t) { return t.defined() ? t.to(dtype) : t; };
  return {narrow(x), narrow(gain), narrow(bias), dy.to(dy_dtype), narrow(plus)};
}

// x - mean is off by the depth of its sum, so is xhat beside 1 (rows are such), and rstd twice:
// with the sum of squares. A gradient is a few products and two more sums of these.
void expect_norm(const std::vector<at::Tensor>& got, const NormCase& c, Depths depths) {
  const at::Tensor x = c.x.to(at::kDouble), gain = c.gain.to(at::kDouble);
  const at::Tensor dy = c.dy.to(at::kDouble), g = dy * gain;
  const at::Tensor plus = c.plus.defined() ? c.plus.to(at::kDouble) : at::zeros_like(x);
  const at::Tensor middle = c.bias.defined() ? x - mean_of(x) : x;
  const at::Tensor rstd = (mean_of(middle.square()) + 1e-5).rsqrt(), hat = middle * rstd;
  at::Tensor y = hat * gain, dx = g - hat * mean_of(g * hat);
  if (c.bias.defined()) y = y + c.bias, dx = dx - mean_of(g);
  dx = dx * rstd + plus;

  const at::Tensor most = hat.abs() + mean_of(x.abs()) * rstd;
  at::Tensor of_y = most * gain.abs();
  if (c.bias.defined()) of_y = of_y + c.bias.abs();
  const at::Tensor of_dx = rstd * (g.abs() + mean_of(g.abs()) + most * mean_of(g.abs() * most));
  expect_within(got[0], y, 3 * depths.row + 8, of_y);
  expect_within(got[1], dx, 4 * depths.row + 20, of_dx + plus.abs());
  expect_within(got[2], (dy * hat).sum(0), 3 * depths.row + 8 + depths.column,
                (dy.abs() * most).sum(0));
  if (c.bias.defined()) expect_within(got[3], dy.sum(0), depths.column, dy.abs().sum(0));
}

}  // namespace sluice::model
