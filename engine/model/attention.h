/// The attention half of a layer, between its norm and the residual: causal, grouped queries.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/model/documents.h"
#include "engine/model/linear.h"
#include "engine/model/norm.h"
#include "engine/model/params.h"

namespace sluice::model {

/// q, k and v, or one product to [q | k | v].
std::vector<Linear> attention_inputs(const shape::Decoder& decoder);
Linear attention_output(const shape::Decoder& decoder);
/// Of queries and of keys, over each head; none where a model has no such norms.
std::vector<Norm> head_norms(const shape::Decoder& decoder);

/// What the heads saw and gave: with it the kernel's backward needs no forward. Heads lie side by
/// side in each token.
struct Attended {
  /// After rotary; where heads are normed, before norm and rotary, which are made again.
  at::Tensor q_NQ, k_NK, v_NK;
  at::Tensor context_NQ;    ///< the input of attention_output
  at::Tensor logsumexp_Nh;  ///< fp32, of each head's scores
};

/// Drops `n_NH`, its normed input, as soon as it has been used.
Attended attend(const shape::Decoder& decoder, const ParamSource& params, at::Tensor n_NH,
                const Places& places);
/// Returns the gradient of `n_NH`, given the one of the context.
at::Tensor attend_backward(const shape::Decoder& decoder, const ParamSource& params,
                           GradSink& grads, const at::Tensor& n_NH, Attended&& attended,
                           const Places& places, const at::Tensor& dcontext_NQ);

}  // namespace sluice::model
