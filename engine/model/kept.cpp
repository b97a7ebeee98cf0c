#include "engine/model/kept.h"

#include <algorithm>

#include "engine/shape/kept.h"
#include "engine/tensor/view.h"

namespace sluice::model {

KeptLayer kept_views(const shape::Decoder& d, std::int64_t tokens, DType compute,
                     std::byte* buffer) {
  const shape::Kept kept = shape::kept_of(d, tokens, compute);
  const auto view = [&](const shape::KeptTensor& t) {
    return tensor::view(buffer + t.offset, t.shape, t.dtype);
  };
  KeptLayer layer{{view(kept.q_NQ), view(kept.k_NK), view(kept.v_NK), view(kept.context_NQ),
                   view(kept.logsumexp_Nh)},
                  view(kept.mid_NH),
                  {{}, view(kept.up_NI)}};
  if (kept.gate_NI.shape[1] > 0) layer.mlp.gate_NI = view(kept.gate_NI);
  return layer;
}

std::vector<at::Tensor> kept_logits_views(const shape::Decoder& d, std::int64_t tokens,
                                          std::int64_t loss_chunk, DType compute,
                                          std::byte* buffer) {
  const Bytes chunk = shape::kept_logits_of(d, tokens, loss_chunk, compute).chunk;
  std::vector<at::Tensor> views;
  for (std::int64_t begin = 0; begin < d.vocab; begin += loss_chunk) {
    const std::int64_t columns = std::min(loss_chunk, d.vocab - begin);
    views.push_back(tensor::view(buffer + views.size() * chunk, {{tokens, columns}}, compute));
  }
  return views;
}

}  // namespace sluice::model
