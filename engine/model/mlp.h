/// The feed-forward half of a layer, between its norm and the residual.
///
/// What is kept for backward is what the input products gave (gate and up); the activation and its
/// product with up are made again, which is cheap beside the matrix products.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/model/linear.h"
#include "engine/model/params.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

/// gate and up, or up alone in a plain MLP.
std::vector<Linear> mlp_inputs(const shape::Decoder& decoder);
Linear mlp_output(const shape::Decoder& decoder);

MlpInputs mlp_forward_inputs(const shape::Decoder& decoder, const ParamSource& params,
                             const at::Tensor& n_NH);
at::Tensor mlp_forward_output(const shape::Decoder& decoder, const ParamSource& params,
                              const MlpInputs& inputs);
/// Takes the inputs over, so that their memory is free as early as can be. Returns the gradient of
/// `n_NH`, the input of mlp_forward_inputs.
at::Tensor mlp_backward(const shape::Decoder& decoder, const ParamSource& params, GradSink& grads,
                        const at::Tensor& n_NH, MlpInputs&& inputs, const at::Tensor& dy_NH);

}  // namespace sluice::model
