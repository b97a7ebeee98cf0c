#include "engine/model/norm.h"

#include <ATen/ops/empty.h>

namespace sluice::model {
namespace {

using shape::Role;

bool has_bias(const Norm& norm) {
  return norm.kind == shape::Norm::kLayer;
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
  const at::Tensor bias = has_bias(norm) ? params.weight(norm.bias) : at::Tensor();
  return norm_rows(x_NH, params.weight(norm.gain), bias, norm.eps);
}

at::Tensor backward(const Norm& norm, const ParamSource& params, GradSink& grads,
                    const at::Tensor& x_NH, const Normed& normed, const at::Tensor& dy_NH) {
  at::Tensor dx = at::empty(x_NH.sizes(), x_NH.options());
  backward_plus(norm, params, grads, x_NH, normed, dy_NH, /*plus_NH=*/{}, dx);
  return dx;
}

void backward_plus(const Norm& norm, const ParamSource& params, GradSink& grads,
                   const at::Tensor& x_NH, const Normed& normed, const at::Tensor& dy_NH,
                   const at::Tensor& plus_NH, const at::Tensor& out_dx_NH) {
  const at::Tensor dbias = has_bias(norm) ? grads.gradient(norm.bias) : at::Tensor();
  norm_rows_backward(x_NH, normed, params.weight(norm.gain), dy_NH, plus_NH,
                     {grads.gradient(norm.gain), dbias, out_dx_NH});
}

}  // namespace sluice::model
