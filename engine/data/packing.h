/// Which pieces of documents share a sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::data {

/// A stretch of one document that is trained on as a whole.
struct Piece {
  std::int64_t first = 0;    ///< its first token, in the row of all
  std::int32_t places = 0;   ///< inputs, one less than its tokens
  std::int32_t targets = 0;  ///< places whose target counts; above 0
};

/// Pieces by sample.
struct Packing {
  std::vector<std::uint32_t> order;   ///< indices of pieces, sample after sample
  std::vector<std::uint64_t> begins;  ///< in `order`, one more than samples
  std::int64_t samples() const { return std::ssize(begins) - 1; }
  std::span<const std::uint32_t> sample(std::int64_t k) const {
    const auto s = static_cast<std::size_t>(k);
    return std::span(order).subspan(begins[s], begins[s + 1] - begins[s]);
  }
};

/// Best fit decreasing: the longest piece first, each into the sample where least room is left over
/// (of several the first one), or into a new one. Samples come in the order of their first pieces,
/// and pieces within a sample in theirs, so that the order of the files is kept as far as it can
/// be.
///
/// Paper   Fewer Truncations Improve Language Modeling, arXiv:2404.10830
/// No piece has more than `seq_len` places; O(n log n) time, some 40 bytes per piece while it runs.
Packing pack(std::span<const Piece> pieces, std::int64_t seq_len);

/// A sample for each piece.
Packing one_each(std::span<const Piece> pieces);

}  // namespace sluice::data
