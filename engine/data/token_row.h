/// Many files as one row of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/token_file.h"

namespace sluice::data {

/// Thread  any, once it stands
/// Throws  as TokenFile
class TokenRow {
 public:
  struct File {
    TokenFile ids;
    std::string mask;        ///< a byte per token, 1 where it counts; empty: every token does
    std::int64_t first = 0;  ///< its first token in the row
  };

  /// A file without tokens adds nothing.
  void add(TokenFile ids, std::string mask);
  std::int64_t tokens() const noexcept { return tokens_; }
  std::span<const File> files() const noexcept { return files_; }

  /// Tokens from `from` on, across files.
  void read(std::int64_t from, std::span<std::int64_t> tokens) const;
  /// Of the same tokens, which count: 1 or 0. Throws kFormat for any other byte of a mask.
  void read_counts(std::int64_t from, std::span<std::uint8_t> counts) const;

 private:
  template <class T, class Read>
  void across_files(std::int64_t from, std::span<T> values, Read read) const;

  std::int64_t tokens_ = 0;
  std::vector<File> files_;
};

}  // namespace sluice::data
