/// The kernel of attention: every query looks at itself and what stands before it, as far as a
/// window reaches. Never a matrix of all scores.
///
/// Shapes  [B, h, S, D]; keys and values may have fewer heads
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::model {

struct Heads {
  at::Tensor q, k, v;
};

struct Looked {
  at::Tensor out;
  at::Tensor logsumexp;  ///< [B, h, S], fp32
};

/// `window`: tokens that a query sees, itself too; 0: all before it.
Looked look(const Heads& heads, std::int64_t window);
/// The gradients of the heads, given the one of `looked.out`. Sums in a fixed order.
Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    std::int64_t window);

}  // namespace sluice::model
