/// The kernel of attention: every query looks at itself and what stands before it in its document,
/// as far as a window reaches. Never a matrix of all scores. As row_kernels.h: a body per backend.
///
/// Shapes  [B, h, S, D]; keys and values may have fewer heads
/// Window  tokens that a query sees, itself too; 0: all before it
/// Sums    in an order that shapes and threads decide
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/model/documents.h"

namespace sluice::model {

struct Heads {
  at::Tensor q, k, v;
};

struct Looked {
  at::Tensor out;
  at::Tensor logsumexp;  ///< [B, h, S], fp32
};

/// Where each row is one document.
Looked look(const Heads& heads, std::int64_t window);
/// The gradients of the heads, given the one of `looked.out`.
Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    std::int64_t window);

/// Where there may be several.
Looked look(const Heads& heads, const Documents& documents, std::int64_t window);
Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    const Documents& documents, std::int64_t window);

}  // namespace sluice::model
