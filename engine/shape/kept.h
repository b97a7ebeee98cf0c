/// What is kept of a forward for its backward, as one flat buffer.
///
/// Of a layer everything that costs a matrix product or the attention kernel; norms and the
/// activation function are made again. Of a head that sees its vocabulary in several chunks the
/// logits of its first pass, for its second.
///
/// Shape  N = batch x sequence tokens, Q and K the widths of queries and keys, h heads,
///        H hidden, I intermediate; every tensor contiguous, begun on a multiple of kAlignment
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/units.h"
#include "engine/shape/decoder.h"

namespace sluice::shape {

struct KeptTensor {
  std::array<std::int64_t, 2> shape{};
  DType dtype = DType::kF32;
  Bytes offset = 0;
};

struct Kept {
  KeptTensor q_NQ, k_NK, v_NK;  ///< after rotary; before norm and rotary where heads are normed
  KeptTensor context_NQ;
  KeptTensor logsumexp_Nh;  ///< fp32
  KeptTensor mid_NH;        ///< the residual stream between attention and MLP
  KeptTensor gate_NI;       ///< of a gated MLP; else of shape {N, 0}
  KeptTensor up_NI;
  Bytes bytes = 0;
};

Kept kept_of(const Decoder& decoder, std::int64_t tokens, DType compute);

/// Chunk after chunk, each [N, columns] contiguous; the last may have fewer columns.
struct KeptLogits {
  Bytes chunk = 0;  ///< from the beginning of one to that of the next
  Bytes bytes = 0;  ///< 0: with one chunk there is no second pass
};

KeptLogits kept_logits_of(const Decoder& decoder, std::int64_t tokens, std::int64_t loss_chunk,
                          DType compute);

}  // namespace sluice::shape
