/// Rotary positions: pairs (i, i + D/2) of each head turn by an angle that grows with the position,
/// as in transformers' Llama.
///
/// Paper   RoFormer, arXiv:2104.09864; the pairing is Hugging Face's ("rotate half")
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/shape/decoder.h"

namespace sluice::model {

/// Of each token of a batch.
struct Rotary {
  at::Tensor cos_BS1P, sin_BS1P;  ///< fp32, P = head_dim / 2 pairs
};

enum class Turn { kForward, kBack };

Rotary make_rotary(const shape::Decoder& decoder, const at::Tensor& positions_BS);
/// A new contiguous tensor; fp32 inside, rounded once. Turning back is the gradient of turning,
/// also where the cosines are scaled.
at::Tensor rotate(const at::Tensor& x_BShD, const Rotary& rotary, Turn turn);

}  // namespace sluice::model
