/// Rotary positions: pairs (i, i + D/2) of each head turn by an angle that grows with the position,
/// as in transformers' Llama.
///
/// Paper   RoFormer, arXiv:2104.09864; the pairing is Hugging Face's ("rotate half")
#pragma once

#include "engine/model/documents.h"
#include "engine/model/row_kernels.h"
#include "engine/shape/decoder.h"

namespace sluice::model {

/// For rotate(), forward and back: turning back is the gradient of turning, also where the cosines
/// are scaled.
Rotary make_rotary(const shape::Decoder& decoder, const Places& places);

}  // namespace sluice::model
