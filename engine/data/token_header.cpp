#include "engine/data/token_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include "engine/base/error.h"
#include "engine/data/excerpt.h"

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

/// Python literals, one after the other, with the white space before each.
class Literals {
 public:
  explicit Literals(std::string_view text) : rest_(text) {}

  bool is_next(char c) {
    skip_space();
    return rest_.starts_with(c);
  }
  bool take(char c) {
    const bool is = is_next(c);
    if (is) rest_.remove_prefix(1);
    return is;
  }
  bool at_end() {
    skip_space();
    return rest_.empty();
  }
  /// Without its quotes; empty when none comes next.
  std::string_view text() {
    if (!take('\'')) return {};
    const std::string_view found = rest_.substr(0, rest_.find('\''));
    rest_.remove_prefix(std::min(found.size() + 1, rest_.size()));
    return found;
  }
  bool take_word(std::string_view word) {
    skip_space();
    const bool is = rest_.starts_with(word);
    if (is) rest_.remove_prefix(word.size());
    return is;
  }
  std::optional<std::int64_t> whole_number() {
    std::int64_t number = 0;
    if (is_next('-')) return std::nullopt;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return number;
  }

 private:
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }

  std::string_view rest_;
};

bool take_type(Literals& from, TokenHeader& into) {
  constexpr std::array<std::string_view, 4> kTypes = {"<u2", "<u4", "<i4", "<i8"};
  const std::string_view type = from.text();
  if (std::ranges::find(kTypes, type) == kTypes.end()) return false;
  into.is_signed = type[1] == 'i';
  into.width = type[2] - '0';
  return true;
}

/// `(8,)`
bool take_shape(Literals& from, TokenHeader& into) {
  if (!from.take('(')) return false;
  const std::optional<std::int64_t> tokens = from.whole_number();
  into.tokens = tokens.value_or(0);
  return tokens && from.take(',') && from.take(')');
}

bool take_entry(Literals& from, TokenHeader& into) {
  const std::string_view key = from.text();
  if (!from.take(':')) return false;
  if (key == "descr") return take_type(from, into);
  if (key == "shape") return take_shape(from, into);
  return key == "fortran_order" && from.take_word("False");
}

/// `{'descr': '<u4', 'fortran_order': False, 'shape': (8,), }`, in any order; nullopt for all else.
std::optional<TokenHeader> header_in(std::string_view text) {
  constexpr int kEntries = 3;
  Literals from(text);
  TokenHeader made{.tokens = -1, .width = 0};
  if (!from.take('{')) return std::nullopt;
  int entries = 0;
  for (; !from.is_next('}'); ++entries) {
    if (!take_entry(from, made)) return std::nullopt;
    if (!from.take(',') && !from.is_next('}')) return std::nullopt;
  }
  const bool whole = from.take('}') && from.at_end();
  if (!whole || entries != kEntries || made.width == 0 || made.tokens < 0) return std::nullopt;
  return made;
}

}  // namespace

TokenHeader read_npy_header(const Descriptor& file, const std::string& path) {
  const std::optional<NpyText> header = npy_text(file);
  SLUICE_CHECK(header.has_value(), kFormat,
               fmt::format("{}: does not begin as NumPy's .npy files do; was it cut short, or is "
                           "it something else?",
                           path));
  std::optional<TokenHeader> made = header_in(header->text);
  SLUICE_CHECK(made.has_value(), kFormat,
               fmt::format("{}: an array \"{}\"; token ids are one dimension of uint16, uint32, "
                           "int32 or int64: save array.reshape(-1).astype('<u4')",
                           path, excerpt(header->text)));
  made->bytes = header->end;
  return *made;
}

std::optional<TokenHeader> read_llmc_header(const Descriptor& file, const std::string& path) {
  if (file.size() < sizeof(std::uint32_t)) return std::nullopt;
  const auto magic = number_at<std::uint32_t>(file, 0);
  if (magic != kLlmcGpt2 && magic != kLlmcLlama3) return std::nullopt;
  SLUICE_CHECK(file.size() >= kLlmcBytes, kFormat,
               fmt::format("{}: begins with llm.c's header of {} bytes and is cut short: {} bytes",
                           path, kLlmcBytes, file.size()));
  const auto version = number_at<std::uint32_t>(file, sizeof(std::uint32_t));
  const std::uint32_t known = magic == kLlmcGpt2 ? 1 : 7;
  SLUICE_CHECK(version == known, kFormat,
               fmt::format("{}: llm.c's header of version {}, tokens behind {} have version {}; is "
                           "it a file of weights, or damaged?",
                           path, version, magic, known));
  return TokenHeader{.bytes = kLlmcBytes,
                     .tokens = number_at<std::uint32_t>(file, 2 * sizeof(std::uint32_t)),
                     .width = magic == kLlmcGpt2 ? 2 : 4};
}

}  // namespace sluice::data
