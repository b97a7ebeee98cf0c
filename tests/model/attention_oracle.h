/// Attention and its way back in fp64, and how far from them a kernel may be that never has all
/// scores at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/model/kernel.h"

namespace sluice::model {

/// What a way back in 16 bits rounds to 16 bits on its way; nothing in fp32.
struct Narrow {
  double factors = 0;                   ///< times, each probability and each score's gradient
  double query_sums = 0, key_sums = 0;  ///< times, what has been added up for a query, for a key
};

struct Bounded {
  at::Tensor exact, allowed;  ///< in fp64; before it is rounded to the heads' type
};
struct ExactAttention {
  Bounded out, dq, dk, dv;
};
ExactAttention exact_attention(const Heads& heads, const at::Tensor& dout, std::int64_t window,
                               Narrow narrow);

void expect_within(const Looked& looked, const Heads& gradients, const ExactAttention& exact);

}  // namespace sluice::model
