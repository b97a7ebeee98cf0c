/// Where the tokens of a batch stand: several documents may lie in one row, and no token sees one
/// of another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::model {

/// Tokens of one row of a batch, side by side.
struct Document {
  std::int64_t row, begin, tokens;
};

/// All documents of a batch, in order. The host launches by them; a device cannot be asked for
/// them.
struct Documents {
  std::vector<Document> all;
  /// The same for the kernels of a device, and in its memory: int32, 0 and then the end of each,
  /// counted over all rows. None on the host.
  at::Tensor ends;
};

struct Places {
  at::Tensor positions_BS;  ///< int64, within a token's document
  Documents documents;
};

/// Position 0 begins a document, and so does a row of `seq`. From positions in host memory.
std::vector<Document> documents_in(std::span<const std::int64_t> positions, std::int64_t seq);

}  // namespace sluice::model
