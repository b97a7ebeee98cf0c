#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "engine/model/host/row_blocks.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {
namespace {

at::Tensor mean_of_row(const at::Tensor& t) {
  return t.mean({1}, /*keepdim=*/true);
}

}  // namespace

Normed norm_rows(const at::Tensor& x_NH, const at::Tensor& gain_H, const at::Tensor& bias_H,
                 double eps) {
  const auto fp32 = x_NH.options().dtype(at::kFloat);
  const bool has_mean = bias_H.defined();
  const at::Tensor gain = gain_H.to(at::kFloat);
  at::Tensor bias;
  Normed normed{at::empty_like(x_NH), at::empty({x_NH.size(0), 1}, fp32), {}};
  if (has_mean) {
    bias = bias_H.to(at::kFloat);
    normed.mean_N1 = at::empty({x_NH.size(0), 1}, fp32);
  }
  for_row_blocks(x_NH, [&](RowBlock block) {
    at::Tensor x = block.in_fp32(x_NH);
    if (has_mean) {
      const at::Tensor mean = mean_of_row(x);
      block.of(normed.mean_N1).copy_(mean);
      x = at::sub(x, mean);
    }
    const at::Tensor rstd = at::rsqrt(mean_of_row(at::square(x)).add_(eps));
    block.of(normed.rstd_N1).copy_(rstd);
    at::Tensor y = at::mul(x, rstd).mul_(gain);
    if (has_mean) y.add_(bias);
    block.of(normed.y_NH).copy_(y);
  });
  return normed;
}

// With xhat = (x - mean) rstd and g = dy gain, per row:
//   dx = rstd (g - xhat mean(g xhat) [- mean(g), of a layer norm])
at::Tensor norm_rows_backward(const at::Tensor& x_NH, const Normed& normed,
                              const at::Tensor& gain_H, const at::Tensor& dy_NH,
                              const at::Tensor& out_dgain_H, const at::Tensor& out_dbias_H) {
  const auto fp32 = x_NH.options().dtype(at::kFloat);
  const bool has_mean = normed.mean_N1.defined();
  const at::Tensor gain = gain_H.to(at::kFloat);
  at::Tensor dgain = at::zeros({x_NH.size(1)}, fp32);
  at::Tensor dbias = at::zeros({x_NH.size(1)}, fp32);
  at::Tensor dx_NH = at::empty_like(x_NH);
  for_row_blocks(x_NH, [&](RowBlock block) {
    const at::Tensor rstd = block.of(normed.rstd_N1);
    const at::Tensor dy = block.in_fp32(dy_NH);
    at::Tensor xhat = block.in_fp32(x_NH);
    if (has_mean) xhat = at::sub(xhat, block.of(normed.mean_N1));
    xhat = at::mul(xhat, rstd);
    dgain.add_(at::mul(dy, xhat).sum(0));
    if (has_mean) dbias.add_(dy.sum(0));

    at::Tensor g = at::mul(dy, gain);
    const at::Tensor along_xhat = mean_of_row(at::mul(g, xhat));
    if (has_mean) g.sub_(mean_of_row(g));
    block.of(dx_NH).copy_(g.sub_(xhat.mul_(along_xhat)).mul_(rstd));
  });
  out_dgain_H.copy_(dgain);
  if (has_mean) out_dbias_H.copy_(dbias);
  return dx_NH;
}

}  // namespace sluice::model
