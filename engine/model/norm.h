/// Layer norm and RMS norm over the last dimension: fp32 inside, rounded once.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/model/params.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

struct Norm {
  shape::Norm kind;
  double eps;
  shape::Role gain;
  shape::Role bias;  ///< of a layer norm
};

Norm attention_norm(const shape::Decoder& decoder);
Norm mlp_norm(const shape::Decoder& decoder);
Norm final_norm(const shape::Decoder& decoder);

Normed forward(const Norm& norm, const ParamSource& params, const at::Tensor& x_NH);
/// Writes the gradients of gain and bias; returns the one of x. dy may be fp32 beside a bf16 x.
at::Tensor backward(const Norm& norm, const ParamSource& params, GradSink& grads,
                    const at::Tensor& x_NH, const Normed& normed, const at::Tensor& dy_NH);
/// The same, with `plus` added to the gradient of x, to `out_dx`, which may be either's memory.
void backward_plus(const Norm& norm, const ParamSource& params, GradSink& grads,
                   const at::Tensor& x_NH, const Normed& normed, const at::Tensor& dy_NH,
                   const at::Tensor& plus_NH, const at::Tensor& out_dx_NH);

}  // namespace sluice::model
