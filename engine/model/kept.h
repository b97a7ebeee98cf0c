/// What is kept of a forward for its backward: as fresh tensors, or as views into one flat buffer.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/model/attention.h"
#include "engine/model/mlp.h"

namespace sluice::model {

/// shape::Kept says what is in it and why; the names are the same.
struct KeptLayer {
  Attended attended;
  at::Tensor mid_NH;
  MlpInputs mlp;
};

/// Over `buffer`, of shape::kept_of().bytes, which must outlive the tensors.
KeptLayer kept_views(const shape::Decoder& decoder, std::int64_t tokens, DType compute,
                     std::byte* buffer);

/// The head's logits by chunk, over `buffer` of shape::kept_logits_of().bytes.
std::vector<at::Tensor> kept_logits_views(const shape::Decoder& decoder, std::int64_t tokens,
                                          std::int64_t loss_chunk, DType compute,
                                          std::byte* buffer);

}  // namespace sluice::model
