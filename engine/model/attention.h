/// The attention half of a layer, between its norm and the residual: causal, grouped queries.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/model/linear.h"
#include "engine/model/params.h"

namespace sluice::model {

/// q, k and v, or one product to [q | k | v].
std::vector<Linear> attention_inputs(const shape::Decoder& decoder);
Linear attention_output(const shape::Decoder& decoder);

struct BatchShape {
  std::int64_t batch;
  std::int64_t seq;
};

enum class Keep { kNothing, kForBackward };

/// What the heads saw and gave. Kept for backward it carries LibTorch's graph of the attention
/// kernel alone, because which kernel that is depends on the device.
struct Attended {
  at::Tensor q_BhSD, k_BgSD, v_BgSD;
  at::Tensor out_BhSD;

  at::Tensor context_NQ() const;  ///< the heads side by side: the input of attention_output
};

/// Drops `n_NH`, its normed input, as soon as it has been used.
Attended attend(const shape::Decoder& decoder, const ParamSource& params, at::Tensor n_NH,
                BatchShape shape, Keep keep);
/// Returns the gradient of `n_NH`, given the one of the context.
at::Tensor attend_backward(const shape::Decoder& decoder, const ParamSource& params,
                           GradSink& grads, const at::Tensor& n_NH, Attended&& attended,
                           const at::Tensor& dcontext_NQ);

}  // namespace sluice::model
