#include "engine/data/token_header.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstring>
#include <regex>
#include <string_view>

#include "engine/base/error.h"

namespace sluice::data {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are read as they lie in the file");

constexpr std::uint64_t kLlmcBytes = 256 * sizeof(std::uint32_t);
constexpr std::uint32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;

template <class T>
T number_at(const Descriptor& file, std::uint64_t offset) {
  T value{};
  file.read(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

/// The text of the header and where it ends.
struct NpyText {
  std::string text;
  std::uint64_t end = 0;
};

std::optional<NpyText> npy_text(const Descriptor& file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr std::uint64_t kLongest = 1 << 16;
  const std::uint64_t size = file.size();
  if (size < 12) return std::nullopt;
  std::array<char, 8> begin{};
  file.read(0, std::as_writable_bytes(std::span(begin)));
  if (std::string_view(begin.data(), kMagic.size()) != kMagic) return std::nullopt;
  const bool is_short = begin[6] == 1;
  const std::uint64_t at = is_short ? 10 : 12;
  const std::uint64_t length =
      is_short ? number_at<std::uint16_t>(file, 8) : number_at<std::uint32_t>(file, 8);
  if (begin[6] < 1 || begin[6] > 3 || length > kLongest || at + length > size) return std::nullopt;
  NpyText header{std::string(length, ' '), at + length};
  file.read(at, std::as_writable_bytes(std::span(header.text)));
  return header;
}

}  // namespace

TokenHeader read_npy_header(const Descriptor& file, const std::string& path) {
  const std::optional<NpyText> header = npy_text(file);
  SLUICE_CHECK(header.has_value(), kFormat,
               fmt::format("{}: does not begin as NumPy's .npy files do; was it cut short, or is "
                           "it something else?",
                           path));
  const std::string& text = header->text;
  std::smatch type, shape;
  const bool known = std::regex_search(text, type, std::regex("'descr': *'(<u2|<u4|<i4|<i8)'")) &&
                     std::regex_search(text, shape, std::regex("'shape': *\\(([0-9]{1,15}),\\)"));
  SLUICE_CHECK(known, kFormat,
               fmt::format("{}: an array {}; token ids are one dimension of uint16, uint32, int32 "
                           "or int64: save array.reshape(-1).astype('<u4')",
                           path, text.substr(0, text.find_last_not_of(" \n") + 1)));
  TokenHeader made;
  made.bytes = header->end;
  made.is_signed = type[1].str()[1] == 'i';
  made.width = type[1].str()[2] - '0';
  const std::string count = shape[1].str();
  std::from_chars(count.data(), count.data() + count.size(), made.tokens);
  return made;
}

std::optional<TokenHeader> read_llmc_header(const Descriptor& file) {
  if (file.size() < kLlmcBytes) return std::nullopt;
  const auto magic = number_at<std::uint32_t>(file, 0);
  if (magic != kLlmcGpt2 && magic != kLlmcLlama3) return std::nullopt;
  return TokenHeader{.bytes = kLlmcBytes,
                     .tokens = number_at<std::uint32_t>(file, 2 * sizeof(std::uint32_t)),
                     .width = magic == kLlmcGpt2 ? 2 : 4};
}

}  // namespace sluice::data
