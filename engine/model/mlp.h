/// The feed-forward half of a layer, between its norm and the residual.
///
/// What backward starts from is what the input products gave (gate and up), kept or made again; the
/// activation and its product with up are made again either way, which is cheap beside the matrix
/// products.
///
/// chunk  so many tokens go through at a time: what has the intermediate width exists for them
/// only.
///        Part of a run's numbers: with several chunks weight gradients are sums over them
///        (gradient_sums.h)
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

/// out = mid + MLP(n). Fills `keep` whole, if there are tensors in it.
void mlp_forward(const shape::Decoder& decoder, const ParamSource& params, const at::Tensor& n_NH,
                 const at::Tensor& mid_NH, std::int64_t chunk, const MlpInputs& keep,
                 const at::Tensor& out_NH);
/// Returns the gradient of n. Takes over what the forward kept, so that its memory is free as early
/// as can be; if that is nothing, each chunk's is made again.
at::Tensor mlp_backward(const shape::Decoder& decoder, const ParamSource& params, GradSink& grads,
                        const at::Tensor& n_NH, MlpInputs&& kept, std::int64_t chunk,
                        const at::Tensor& dy_NH);

}  // namespace sluice::model
