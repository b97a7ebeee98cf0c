/// y = x W (+ b), and the way back.
///
/// Weights only go through 2-D products: LibTorch's other paths give other bits when a weight
/// requires a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "engine/model/params.h"

namespace sluice::model {

struct Linear {
  shape::LinearLayout layout;
  shape::Role weight;
  std::optional<shape::Role> bias;
};

at::Tensor forward(const Linear& linear, const ParamSource& params, const at::Tensor& x_NI);
/// The same, to memory that is there.
void forward_to(const Linear& linear, const ParamSource& params, const at::Tensor& x_NI,
                at::Tensor out_NO);
/// Writes the gradients of weight and bias; returns the one of x.
at::Tensor backward(const Linear& linear, const ParamSource& params, GradSink& grads,
                    const at::Tensor& x_NI, const at::Tensor& dy_NO);

}  // namespace sluice::model
