#include "engine/shape/kept.h"

namespace sluice::shape {
namespace {

Bytes bytes_of(std::int64_t tokens, std::int64_t width, DType dtype) {
  const Bytes elems = static_cast<Bytes>(tokens) * static_cast<Bytes>(width);
  return round_up(elems * size_of(dtype), kAlignment);
}

}  // namespace

Kept kept_of(const Decoder& d, std::int64_t tokens, DType compute) {
  Kept kept;
  const auto place = [&](std::int64_t width, DType dtype) {
    const KeptTensor tensor{{tokens, width}, dtype, kept.bytes};
    kept.bytes += bytes_of(tokens, width, dtype);
    return tensor;
  };
  const std::int64_t q = d.heads * d.head_dim;
  const std::int64_t k = d.kv_heads * d.head_dim;
  kept.q_NQ = place(q, compute);
  kept.k_NK = place(k, compute);
  kept.v_NK = place(k, compute);
  kept.context_NQ = place(q, compute);
  kept.logsumexp_Nh = place(d.heads, DType::kF32);
  kept.mid_NH = place(d.hidden, compute);
  kept.gate_NI = place(d.mlp == Mlp::kGated ? d.intermediate : 0, compute);
  kept.up_NI = place(d.intermediate, compute);
  return kept;
}

KeptLogits kept_logits_of(const Decoder& d, std::int64_t tokens, std::int64_t loss_chunk,
                          DType compute) {
  if (loss_chunk >= d.vocab) return {};
  const Bytes chunk = bytes_of(tokens, loss_chunk, compute);
  const auto whole = static_cast<Bytes>(d.vocab / loss_chunk);
  return {chunk, whole * chunk + bytes_of(tokens, d.vocab % loss_chunk, compute)};
}

}  // namespace sluice::shape
