/// Attention's way back for what is_widened(): products.h has the reason.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine/model/kernel.h"

namespace sluice::model {

/// In fp32, `at_once` heads of queries at a time, or those that share one of keys; each gradient is
/// rounded once. `mask`: added to the scores; none: causal.
Heads widened_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                       std::int64_t at_once, const std::optional<at::Tensor>& mask);

}  // namespace sluice::model
