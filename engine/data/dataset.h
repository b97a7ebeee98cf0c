/// The tokens of a run: files of text or of token ids, cut into samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/data/options.h"

namespace sluice::data {

/// Up to this much data is read through once at the start, so that a token id beyond the vocabulary
/// is found then. Larger data is only checked where it is used, sample by sample.
inline constexpr Bytes kScanLimit = 256_MiB;

/// One row of tokens from many files: sample k is the S + 1 tokens from token k S on, of all files
/// one after the other in sorted order. S tokens are inputs, the last S targets, and the next
/// sample begins with this one's last target. What does not fill a sample at the end is dropped.
///
/// Text is taken as bytes, one token each. Token files are bare little-endian uint16 or uint32.
/// `auto` takes names that end in .bin for tokens and others for text, but refuses formats that are
/// neither (.npy, .jsonl, .gz ...). Text and tokens do not mix. An empty text file adds nothing.
///
/// Units   tokens; S = options.seq_len
/// Owns    names and sizes. A file is opened to read from it and closed again: any number of files,
///         and one that is cut short later is an error, never a signal
/// Thread  any
/// Throws  kConfig for globs without files, mixed formats, and fewer than S + 1 tokens; kFormat for
///         an empty token file, a size that is no whole number of tokens, and an id beyond the
///         vocabulary (at the start up to kScanLimit, else in `sample`); kIo for a file that cannot
///         be read
class Dataset {
 public:
  struct File {
    std::string path;
    std::int64_t first = 0;   ///< its first token in the row
    std::int64_t tokens = 0;  ///< how many it holds
  };

  /// The files that `globs` names (see glob.h); `vocab` is the model's.
  Dataset(const DataOptions& options, const std::vector<std::string>& globs, std::int64_t vocab);

  std::int64_t samples() const noexcept { return (tokens_ - 1) / seq_len_; }
  std::int64_t seq_len() const noexcept { return seq_len_; }
  std::int64_t tokens() const noexcept { return tokens_; }
  /// Bytes of text; else token ids.
  bool is_text() const noexcept { return width_ == 1; }
  /// Every id is below this: the model's vocabulary, and at most 256 for text.
  std::int64_t vocab() const noexcept { return vocab_; }
  std::span<const File> files() const noexcept { return files_; }

  /// Sample k, of 0 to samples() - 1, into exactly S + 1 places.
  void sample(std::int64_t k, std::span<std::int64_t> tokens) const;

 private:
  struct BadId {
    std::size_t index;
    std::int64_t id;
  };

  void add(const std::string& path);
  void scan() const;
  void read(const File& file, std::int64_t from, std::span<std::int64_t> tokens) const;
  std::optional<BadId> first_bad(std::span<const std::int64_t> tokens) const;

  std::int64_t seq_len_;
  std::int64_t vocab_;
  int width_ = 1;  ///< bytes per token: 1 for text, 2 or 4 for ids
  std::int64_t tokens_ = 0;
  std::vector<File> files_;
};

}  // namespace sluice::data
