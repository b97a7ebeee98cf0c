/// The decoder once more, as one would write it with LibTorch and autograd, in double precision.
/// Shares no code with engine/model.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "engine/shape/model.h"

namespace sluice::model::reference {

using Weights = std::map<shape::Role, at::Tensor>;  // double, requiring gradients

at::Tensor embed(const shape::Decoder& decoder, const Weights& weights, const at::Tensor& tokens,
                 const at::Tensor& positions);
at::Tensor layer(const shape::Decoder& decoder, const Weights& weights, const at::Tensor& positions,
                 const at::Tensor& x);
/// The sum of cross entropies.
at::Tensor head(const shape::Decoder& decoder, const Weights& weights, const at::Tensor& x,
                const at::Tensor& targets);

}  // namespace sluice::model::reference
