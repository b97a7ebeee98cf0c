/// One file of tokens, whatever stands before them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/data/options.h"

namespace sluice::data {

/// Text, of which each byte is a token; bare little-endian uint16 or uint32; the same behind the
/// header of llm.c; a one-dimensional .npy of uint16, uint32, int32 or int64 (docs/data.md).
///
/// Units   tokens
/// Owns    a name and numbers. The file is opened to read from it and closed again: one that is
///         cut short later is an error, never a signal
/// Thread  any
/// Throws  kFormat for an empty token file, a size that is no whole number of tokens, a header that
///         is none of these, and an id beyond the vocabulary; kIo for a file that cannot be read
class TokenFile {
 public:
  /// `dtype`: of bare ids; auto takes what `vocab` needs. `format` is not auto.
  TokenFile(std::string path, DataFormat format, TokenDType dtype, std::int64_t vocab);

  const std::string& path() const noexcept { return path_; }
  std::int64_t tokens() const noexcept { return tokens_; }
  /// Bytes of a token.
  int width() const noexcept { return width_; }

  /// Tokens from `from` on.
  void read(std::int64_t from, std::span<std::int64_t> tokens) const;
  /// All of them, for what read() refuses.
  void check() const;

 private:
  bool any_id_fits() const { return !is_signed_ && vocab_ >= std::int64_t{1} << (8 * width_); }

  std::string path_;
  std::int64_t vocab_;
  int width_ = 1;
  bool is_signed_ = false;
  std::uint64_t begin_ = 0;  ///< bytes before the first token
  std::int64_t tokens_ = 0;
};

/// Bytes of an id: what was asked, or the fewest that hold every id below `vocab`.
int width_of(TokenDType dtype, std::int64_t vocab);

}  // namespace sluice::data
