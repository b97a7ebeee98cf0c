#include "engine/model/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "engine/model/rows.h"

namespace sluice::model {
namespace {

using shape::Role;

bool has_mean(const Norm& norm) {
  return norm.kind == shape::Norm::kLayer;
}

at::Tensor mean_of_row(const at::Tensor& t) {
  return t.mean({1}, /*keepdim=*/true);
}

}  // namespace

Norm attention_norm(const shape::Decoder& d) {
  return {d.norm, d.norm_eps, Role::kAttentionNormGain, Role::kAttentionNormBias};
}
Norm mlp_norm(const shape::Decoder& d) {
  return {d.norm, d.norm_eps, Role::kMlpNormGain, Role::kMlpNormBias};
}
Norm final_norm(const shape::Decoder& d) {
  return {d.norm, d.norm_eps, Role::kFinalNormGain, Role::kFinalNormBias};
}

Normed forward(const Norm& norm, const ParamSource& params, const at::Tensor& x_NH) {
  const auto fp32 = x_NH.options().dtype(at::kFloat);
  const at::Tensor gain = params.weight(norm.gain).to(at::kFloat);
  at::Tensor bias;
  Normed normed{at::empty_like(x_NH), at::empty({x_NH.size(0), 1}, fp32), {}};
  if (has_mean(norm)) {
    bias = params.weight(norm.bias).to(at::kFloat);
    normed.mean_N1 = at::empty({x_NH.size(0), 1}, fp32);
  }
  for_row_blocks(x_NH, [&](RowBlock block) {
    at::Tensor x = block.in_fp32(x_NH);
    if (has_mean(norm)) {
      const at::Tensor mean = mean_of_row(x);
      block.of(normed.mean_N1).copy_(mean);
      x = at::sub(x, mean);
    }
    const at::Tensor rstd = at::rsqrt(mean_of_row(at::square(x)).add_(norm.eps));
    block.of(normed.rstd_N1).copy_(rstd);
    at::Tensor y = at::mul(x, rstd).mul_(gain);
    if (has_mean(norm)) y.add_(bias);
    block.of(normed.y_NH).copy_(y);
  });
  return normed;
}

// With xhat = (x - mean) rstd and g = dy gain, per row:
//   dx = rstd (g - xhat mean(g xhat) [- mean(g), of a layer norm])
at::Tensor backward(const Norm& norm, const ParamSource& params, GradSink& grads,
                    const at::Tensor& x_NH, const Normed& normed, const at::Tensor& dy_NH) {
  const auto fp32 = x_NH.options().dtype(at::kFloat);
  const at::Tensor gain = params.weight(norm.gain).to(at::kFloat);
  at::Tensor dgain = at::zeros({x_NH.size(1)}, fp32);
  at::Tensor dbias = at::zeros({x_NH.size(1)}, fp32);
  at::Tensor dx_NH = at::empty_like(x_NH);
  for_row_blocks(x_NH, [&](RowBlock block) {
    const at::Tensor rstd = block.of(normed.rstd_N1);
    const at::Tensor dy = block.in_fp32(dy_NH);
    at::Tensor xhat = block.in_fp32(x_NH);
    if (has_mean(norm)) xhat = at::sub(xhat, block.of(normed.mean_N1));
    xhat = at::mul(xhat, rstd);
    dgain.add_(at::mul(dy, xhat).sum(0));
    if (has_mean(norm)) dbias.add_(dy.sum(0));

    at::Tensor g = at::mul(dy, gain);
    const at::Tensor along_xhat = mean_of_row(at::mul(g, xhat));
    if (has_mean(norm)) g.sub_(mean_of_row(g));
    block.of(dx_NH).copy_(g.sub_(xhat.mul_(along_xhat)).mul_(rstd));
  });
  grads.gradient(norm.gain).copy_(dgain);
  if (has_mean(norm)) grads.gradient(norm.bias).copy_(dbias);
  return dx_NH;
}

}  // namespace sluice::model
