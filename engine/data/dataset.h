/// The tokens of a run: files of text or of token ids, cut into samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/data/documents.h"
#include "engine/data/options.h"
#include "engine/data/sample.h"
#include "engine/data/token_row.h"

namespace sluice::data {

/// Up to this much data is read through once at the start, so that a token id beyond the vocabulary
/// is found then. Larger data is only checked where it is used, sample by sample.
inline constexpr Bytes kScanLimit = 256_MiB;

/// Samples of many files, one after the other in sorted order.
///
/// A stream (text, bare ids): sample k is the S + 1 tokens from token k S on. S tokens are inputs,
/// the last S targets, and the next sample begins with this one's last target. What does not fill a
/// sample at the end is dropped. Documents (token sets): see documents.h.
///
/// `auto` takes names that end in .bin or .npy for tokens and others for text, but refuses formats
/// that are neither (.jsonl, .gz ...). Text and tokens do not mix, nor streams and documents. An
/// empty text file adds nothing.
///
/// Units   tokens; S = options.seq_len
/// Owns    names and sizes. A file is opened to read from it and closed again: any number of files,
///         and one that is cut short later is an error, never a signal
/// Thread  any
/// Throws  kConfig for globs without files, mixed formats or tokenizers, and fewer than S + 1
///         tokens; kFormat for an empty token file, a size that is no whole number of tokens, what
///         does not belong to its token set, and an id beyond the vocabulary (at the start up to
///         kScanLimit, else in `sample`); kIo for a file that cannot be read
class Dataset {
 public:
  /// The files that `globs` names (see glob.h); `vocab` is the model's.
  Dataset(const DataOptions& options, const std::vector<std::string>& globs, std::int64_t vocab);

  std::int64_t samples() const noexcept;
  std::int64_t seq_len() const noexcept { return seq_len_; }
  std::int64_t tokens() const noexcept { return row_.tokens(); }
  /// Bytes of text; else token ids.
  bool is_text() const noexcept { return is_text_; }
  /// Every id is below this: the model's vocabulary, and at most 256 for text.
  std::int64_t vocab() const noexcept { return vocab_; }
  const TokenRow& row() const noexcept { return row_; }
  std::span<const TokenRow::File> files() const noexcept { return row_.files(); }
  /// Null for a stream.
  const Documents* documents() const noexcept { return documents_ ? &*documents_ : nullptr; }
  /// The folder of the tokenizer that made the ids; empty: not known.
  const std::string& tokenizer() const noexcept { return tokenizer_; }
  /// The SHA-256 of its files (docs/data.md), the same for all sets that have one; empty: not
  /// known. Two Datasets whose sums differ have other meanings for the same ids.
  const std::string& tokenizer_sum() const noexcept { return tokenizer_sum_; }

  /// Sample k, of 0 to samples() - 1.
  void sample(std::int64_t k, Sample into) const;
  /// How many of its places have a target; above 0.
  std::int64_t targets(std::int64_t k) const;

 private:
  struct Sets;
  void add(const std::string& path, const DataOptions& options, DataFormat format, Sets& sets);
  void cut(const Sets& sets, const DataOptions& options);
  void scan() const;

  std::int64_t seq_len_;
  std::int64_t vocab_;
  bool is_text_ = false;
  TokenRow row_;
  std::optional<Documents> documents_;
  std::string tokenizer_;
  std::string tokenizer_sum_;
};

}  // namespace sluice::data
