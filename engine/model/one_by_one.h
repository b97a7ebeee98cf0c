/// Attention within documents by a kernel that knows of none: each document goes through it by
/// itself, or all rows at once where each is one.
#pragma once

#include "engine/model/kernel.h"

namespace sluice::model {

/// Memory for [B, h, S, D] in which heads lie side by side in a token, as the layer wants them.
at::Tensor token_by_token(const at::Tensor& like_BhSD);

Looked look_one_by_one(const Heads& heads, const Documents& documents, std::int64_t window);
Heads look_one_by_one_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                               const Documents& documents, std::int64_t window);

}  // namespace sluice::model
