#include "engine/model/kept.h"

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

}  // namespace sluice::model
