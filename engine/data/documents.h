/// Documents cut into pieces, and pieces put into samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/packing.h"
#include "engine/data/sample.h"
#include "engine/data/token_row.h"

namespace sluice::data {

/// What became of the documents.
struct DocumentCounts {
  std::int64_t documents = 0;
  std::int64_t cut = 0;  ///< longer than a sample: several pieces, each without sight of the others
  std::int64_t without = 0;  ///< nothing of them counts: left out
  std::int64_t pieces = 0;
  std::int64_t places = 0;   ///< that pieces take
  std::int64_t targets = 0;  ///< places whose target counts
};

/// A document of L tokens takes L - 1 places: each predicts the next token. One of more than
/// seq_len places becomes several pieces, each beginning with the last token of the one before.
/// Positions begin anew with each piece. Padding stands at the end of a sample, as a document of
/// its own that has no target.
///
/// Units   24 bytes of memory per piece
/// Thread  any, once it stands
/// Throws  kConfig when nothing counts; as TokenRow
class Documents {
 public:
  /// `ends` by document, in the row. Reads all masks once.
  Documents(const TokenRow& row, std::span<const std::int64_t> ends, std::int64_t seq_len,
            bool packed);

  std::int64_t samples() const { return packing_.samples(); }
  /// Places of sample k whose target counts; above 0.
  std::int64_t targets(std::int64_t k) const;
  void sample(const TokenRow& row, std::int64_t k, Sample into) const;
  /// The pieces of sample k, in their order in it.
  std::vector<Piece> pieces(std::int64_t k) const;
  const DocumentCounts& counts() const { return counts_; }
  /// The counts, for people.
  std::string describe(std::int64_t seq_len) const;

 private:
  class Marks;
  void add(Marks& marks, std::int64_t begin, std::int64_t end, std::int64_t seq_len);

  std::vector<Piece> pieces_;
  Packing packing_;
  DocumentCounts counts_;
};

}  // namespace sluice::data
