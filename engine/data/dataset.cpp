#include "engine/data/dataset.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/data/descriptor.h"
#include "engine/data/glob.h"

namespace sluice::data {
namespace {

DataFormat format_of(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".bin") return DataFormat::kTokens;
  constexpr std::array kNeither = {".npy", ".npz", ".jsonl", ".parquet", ".arrow", ".gz", ".zst"};
  SLUICE_CHECK(std::ranges::find(kNeither, ending) == kNeither.end(), kConfig,
               fmt::format("{}: {} files are not read; write its tokens to a .bin file, or set "
                           "data.format: text to train on its bytes as they are",
                           path, ending));
  return DataFormat::kText;
}

DataFormat common_format(const DataOptions& options, const std::vector<std::string>& paths) {
  if (options.format != DataFormat::kAuto) return options.format;
  const DataFormat format = format_of(paths.front());
  for (const std::string& path : paths) {
    SLUICE_CHECK(
        format_of(path) == format, kConfig,
        fmt::format("data: {} and {} are text and token ids and do not mix; name one kind, "
                    "or set data.format",
                    paths.front(), path));
  }
  return format;
}

/// Bytes per token.
int width_of(DataFormat format, TokenDType dtype, std::int64_t vocab) {
  if (format == DataFormat::kText) return 1;
  switch (dtype) {
    case TokenDType::kAuto:
      return vocab <= 65536 ? 2 : 4;
    case TokenDType::kUint16:
      return 2;
    case TokenDType::kUint32:
      return 4;
  }
  throw Error(Errc::kLogic, "token ids of an unknown type");
}

std::int64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return static_cast<std::int64_t>(value);
}

}  // namespace

Dataset::Dataset(const DataOptions& options, const std::vector<std::string>& globs,
                 std::int64_t vocab)
    : seq_len_(options.seq_len), vocab_(vocab) {
  SLUICE_CHECK(seq_len_ >= 1, kConfig,
               fmt::format("data.seq_len: {} tokens make no sample; 1 or more", seq_len_));
  SLUICE_CHECK(vocab_ >= 1, kConfig, fmt::format("a vocabulary of {} holds no token", vocab_));
  const std::vector<std::string> paths = expand_globs(globs);
  const DataFormat format = common_format(options, paths);
  width_ = width_of(format, options.token_dtype, vocab);
  if (is_text()) vocab_ = std::min<std::int64_t>(vocab_, 256);

  for (const std::string& path : paths) add(path);
  SLUICE_CHECK(
      tokens_ - 1 >= seq_len_, kConfig,
      fmt::format("one sample needs {} tokens (data.seq_len + 1), but the {} file(s) "
                  "from {} on hold {}; name more files or lower data.seq_len",
                  static_cast<std::uint64_t>(seq_len_) + 1, paths.size(), paths.front(), tokens_));
  scan();
}

void Dataset::add(const std::string& path) {
  const std::uint64_t bytes = Descriptor(path, O_RDONLY).size();
  const auto width = static_cast<std::uint64_t>(width_);
  SLUICE_CHECK(bytes > 0 || width_ == 1, kFormat, fmt::format("{}: a token file of 0 bytes", path));
  SLUICE_CHECK(bytes % width == 0, kFormat,
               fmt::format("{}: {} bytes are no whole number of uint{} tokens; is the file cut "
                           "short, or is data.token_dtype wrong?",
                           path, bytes, 8 * width_));
  const auto tokens = static_cast<std::int64_t>(bytes / width);
  if (tokens > 0) files_.push_back({path, tokens_, tokens});
  tokens_ += tokens;
}

void Dataset::scan() const {
  const auto all = static_cast<Bytes>(tokens_) * static_cast<Bytes>(width_);
  const bool any_id_fits = vocab_ >= std::int64_t{1} << (8 * width_);
  if (all >= kScanLimit || any_id_fits) return;
  std::vector<std::int64_t> piece(1 << 16);
  for (const File& file : files_) {
    for (std::int64_t at = 0; at < file.tokens; at += std::ssize(piece)) {
      const std::int64_t n = std::min<std::int64_t>(std::ssize(piece), file.tokens - at);
      read(file, at, std::span(piece).first(static_cast<std::size_t>(n)));
    }
  }
}

void Dataset::sample(std::int64_t k, std::span<std::int64_t> tokens) const {
  SLUICE_CHECK(k >= 0 && k < samples(), kLogic,
               fmt::format("sample {} of a dataset with {}", k, samples()));
  SLUICE_CHECK(std::ssize(tokens) == seq_len_ + 1, kLogic,
               fmt::format("{} places for the {} tokens of a sample", tokens.size(), seq_len_ + 1));
  std::int64_t at = k * seq_len_;
  auto file = std::ranges::upper_bound(files_, at, {}, &File::first) - 1;
  for (; !tokens.empty(); ++file) {
    const std::int64_t from = at - file->first;
    const auto n = static_cast<std::size_t>(std::min(std::ssize(tokens), file->tokens - from));
    read(*file, from, tokens.first(n));
    tokens = tokens.subspan(n);
    at += static_cast<std::int64_t>(n);
  }
}

void Dataset::read(const File& file, std::int64_t from, std::span<std::int64_t> tokens) const {
  const auto width = static_cast<std::size_t>(width_);
  const std::uint64_t offset = static_cast<std::uint64_t>(from) * width;
  std::vector<std::byte> bytes(tokens.size() * width);
  Descriptor(file.path, O_RDONLY).read(offset, bytes);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = little_endian(std::span(bytes).subspan(i * width, width));
  }
  if (const auto bad = first_bad(tokens)) {
    throw Error(
        Errc::kFormat,
        fmt::format("{}: token id {} at byte {} is beyond the vocabulary of {}; the file was "
                    "made for another vocabulary, or data.token_dtype is wrong",
                    file.path, bad->id, offset + bad->index * width, vocab_));
  }
}

std::optional<Dataset::BadId> Dataset::first_bad(std::span<const std::int64_t> tokens) const {
  const auto bad = std::ranges::find_if(tokens, [&](std::int64_t id) { return id >= vocab_; });
  if (bad == tokens.end()) return std::nullopt;
  return BadId{static_cast<std::size_t>(bad - tokens.begin()), *bad};
}

}  // namespace sluice::data
