#include "engine/data/token_file.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/descriptor.h"
#include "engine/data/paths.h"
#include "engine/data/token_header.h"

namespace sluice::data {
namespace {

std::optional<TokenHeader> header_of(const Descriptor& file, const std::string& path) {
  if (ending_of(path) == ".npy") return read_npy_header(file, path);
  return read_llmc_header(file, path);
}

const char* name_of(TokenDType dtype) {
  return dtype == TokenDType::kUint16 ? "uint16" : "uint32";
}

std::int64_t little_endian(std::span<const std::byte> bytes, bool is_signed) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  const std::size_t unused = 64 - 8 * bytes.size();
  if (!is_signed) return static_cast<std::int64_t>(value);
  return static_cast<std::int64_t>(value << unused) >> unused;
}

}  // namespace

int width_of(TokenDType dtype, std::int64_t vocab) {
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

TokenFile::TokenFile(std::string path, DataFormat format, TokenDType dtype, std::int64_t vocab)
    : path_(std::move(path)), vocab_(vocab) {
  const Descriptor file(path_, O_RDONLY);
  const std::uint64_t size = file.size();
  if (format == DataFormat::kText) {
    vocab_ = std::min<std::int64_t>(vocab_, 256);
    tokens_ = static_cast<std::int64_t>(size);
    return;
  }
  SLUICE_CHECK(size > 0, kFormat, fmt::format("{}: a token file of 0 bytes", path_));
  width_ = width_of(dtype, vocab);
  const std::optional<TokenHeader> header = header_of(file, path_);
  if (header) {
    SLUICE_CHECK(dtype == TokenDType::kAuto || header->width == width_, kFormat,
                 fmt::format("{}: its header says ids of {} bytes, data.token_dtype is {}: leave "
                             "it auto",
                             path_, header->width, name_of(dtype)));
    width_ = header->width;
    is_signed_ = header->is_signed;
    begin_ = header->bytes;
  }
  const auto width = static_cast<std::uint64_t>(width_);
  const std::uint64_t bytes = size - begin_;
  SLUICE_CHECK(!header || bytes / width == static_cast<std::uint64_t>(header->tokens), kFormat,
               fmt::format("{}: its header promises {} tokens of {} bytes, {} bytes follow; is the "
                           "file cut short?",
                           path_, header->tokens, width, bytes));
  SLUICE_CHECK(bytes % width == 0, kFormat,
               fmt::format("{}: {} bytes are no whole number of uint{} tokens; is the file cut "
                           "short, or is data.token_dtype wrong?",
                           path_, bytes, 8 * width_));
  tokens_ = static_cast<std::int64_t>(bytes / width);
}

void TokenFile::read(std::int64_t from, std::span<std::int64_t> tokens) const {
  const auto width = static_cast<std::size_t>(width_);
  const std::uint64_t offset = begin_ + static_cast<std::uint64_t>(from) * width;
  std::vector<std::byte> bytes(tokens.size() * width);
  Descriptor(path_, O_RDONLY).read(offset, bytes);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = little_endian(std::span(bytes).subspan(i * width, width), is_signed_);
  }
  const auto bad =
      std::ranges::find_if(tokens, [&](std::int64_t id) { return id < 0 || id >= vocab_; });
  if (bad == tokens.end()) return;
  const auto index = static_cast<std::size_t>(bad - tokens.begin());
  throw Error(Errc::kFormat,
              fmt::format("{}: token id {} at byte {} is beyond the vocabulary of {}; the file was "
                          "made for another vocabulary, or data.token_dtype is wrong",
                          path_, *bad, offset + index * width, vocab_));
}

void TokenFile::check() const {
  if (any_id_fits()) return;
  std::vector<std::int64_t> piece(1 << 16);
  for (std::int64_t at = 0; at < tokens_; at += std::ssize(piece)) {
    const std::int64_t n = std::min<std::int64_t>(std::ssize(piece), tokens_ - at);
    read(at, std::span(piece).first(static_cast<std::size_t>(n)));
  }
}

}  // namespace sluice::data
