/// Attention within documents: several of them may lie in one row of a batch, and no token sees
/// one of another. Each goes through the kernel (kernel.h) by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/model/kernel.h"

namespace sluice::model {

/// Tokens of one row of a batch, side by side.
struct Document {
  std::int64_t row, begin, tokens;
};

/// What the queries of a batch see.
struct Reach {
  std::int64_t window = 0;          ///< as kernel.h has it, within a document
  std::vector<Document> documents;  ///< all of them, in order; none: each row is one
};

/// All of a batch, in order: position 0 begins a document, and so does a row.
std::vector<Document> documents_in(const at::Tensor& positions_BS);
Reach reach_of(const at::Tensor& positions_BS, std::int64_t window);

Looked look(const Heads& heads, const Reach& reach);
Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    const Reach& reach);

}  // namespace sluice::model
