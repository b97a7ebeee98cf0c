/// What `sluice data tokenize` leaves beside a token file: where its documents end, and which of
/// their tokens count (docs/data.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/options.h"

namespace sluice::data {

struct TokenSet {
  TokenDType dtype = TokenDType::kUint16;
  std::vector<std::int64_t> ends;  ///< of the documents, in tokens; ascending
  std::string mask;                ///< a file of a byte per token; empty: every token counts
  std::int64_t targets = 0;        ///< that the manifest promises of the mask
  std::int64_t vocab = 0;          ///< of the tokenizer
  std::string tokenizer;           ///< its folder; empty: not known
  std::string tokenizer_sum;       ///< of its files; empty: not known
};

/// The set that `token_file` is part of; nullopt when nothing of one stands beside it. A source
/// that is there and has changed its time since is warned of.
///
/// Throws  kFormat for a manifest, ends or mask that do not belong to the file or are missing, and
///         for a source of another size than the one that was tokenized; kIo
std::optional<TokenSet> read_token_set(const std::string& token_file);

}  // namespace sluice::data
