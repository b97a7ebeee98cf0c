/// Attention and its way back in fp64, and how far from them a kernel may be that never has all
/// scores at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/model/kernel.h"

namespace sluice::model {

/// What a way back in 16 bits rounds to 16 bits before it is done; nothing in fp32. Each is a
/// number of times.
struct Narrow {
  std::int64_t factors = 0;  ///< a probability, and a score's gradient, before they are multiplied
  std::int64_t query_sums = 0;  ///< a query's gradient, as it is added up
  std::int64_t key_sums = 0;    ///< a key's, and a value's
};

struct Bounded {
  at::Tensor exact, allowed;  ///< in fp64; before it is rounded to the heads' type
};
struct ExactAttention {
  Bounded out, logsumexp, dq, dk, dv;
};
ExactAttention exact_attention(const Heads& heads, const at::Tensor& dout, std::int64_t window,
                               Narrow narrow);

void expect_within(const Looked& looked, const Heads& gradients, const ExactAttention& exact);

}  // namespace sluice::model
