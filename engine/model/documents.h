/// Where the tokens of a batch stand: several documents may lie in one row, and no token sees one
/// of another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
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
  /// counted over all rows. The host's kernels do without.
  at::Tensor ends;

  /// Every row of the batch is one.
  bool are_rows(std::int64_t rows) const { return std::ssize(all) == rows; }
};

struct Places {
  at::Tensor positions_BS;  ///< int64, within a token's document
  Documents documents;
};

/// `ends`: 0 and then the end of each, counted over all rows of `seq`; behind the last one it may
/// stand again. In host memory.
std::vector<Document> documents_of(std::span<const std::int32_t> ends, std::int64_t seq);

/// What flash attention's backward takes for each document beside its tokens, in tokens. So only so
/// many documents go through it at once that this is no more than all tokens take.
inline constexpr std::int64_t kDocumentScratch = 128;

/// Documents that go through a kernel together.
struct Group {
  std::size_t first, count;
  std::int64_t begin, tokens;  ///< counted over all rows
};
/// All of them, in order. `tokens`: of the batch.
std::vector<Group> groups_of(std::span<const Document> documents, std::int64_t tokens);

}  // namespace sluice::model
