#include "tests/checkpoint/mutator.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace sluice::checkpoint {
namespace {

const std::vector<std::string> kNumbers = {"0",
                                           "1",
                                           "2",
                                           "3",
                                           "8",
                                           "-1",
                                           "-0",
                                           "0.5",
                                           "1e3",
                                           "1e999",
                                           "2147483648",
                                           "4294967296",
                                           "4611686018427387905",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551615",
                                           "18446744073709551616",
                                           "null",
                                           "[]",
                                           "[1]",
                                           "{}"};
const std::vector<std::string> kWords = {
    "\"F32\"",        "\"BF16\"",         "\"F16\"",    "\"U8\"",
    "\"F64\"",        "\"F4\"",           "\"a\"",      "\"b\"",
    "\"shape\"",      "\"dtype\"",        "\"\"",       "\"data_offsets\"",
    "\"weight_map\"", "\"../x\"",         "\"/\"",      "\"one.safetensors\"",
    "\"\\u0000\"",    "\"__metadata__\"", "true",       "\"two.safetensors\"",
    "\"pending\"",    "\"skipped\"",      "\"factor\"", "\"gradients\""};
const std::vector<std::uint64_t> kLengths = {
    0, 1, 2, 7, 8, 64, 1U << 20, 99'999'999, 100'000'001, 1ULL << 40, 1ULL << 63, ~0ULL};

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_quote(char c) {
  return c == '"';
}
bool is_no_quote(char c) {
  return c != '"';
}

}  // namespace

/// Another token where one stands, from a place chosen at random.
void Mutator::change_token(std::string& bytes, bool (*begins)(char), bool (*goes_on)(char),
                           const std::vector<std::string>& to) {
  const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size()));
  const auto begin = std::find_if(from, bytes.end(), begins);
  if (begin == bytes.end()) return;
  auto end = std::find_if_not(begin + 1, bytes.end(), goes_on);
  if (is_quote(*begin) && end != bytes.end()) ++end;
  bytes.replace(begin, end, one_of(to));
}

void Mutator::change(std::string& bytes) {
  if (bytes.empty()) return;
  const std::size_t at = below(bytes.size());
  const std::size_t count = 1 + below(std::min<std::size_t>(bytes.size() - at, 40));
  switch (below(8)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      return;
    case 1:
      bytes[at] = static_cast<char>(below(256));
      return;
    case 2:
      bytes.resize(at);
      return;
    case 3:
      bytes.erase(at, count);
      return;
    case 4:
      bytes.insert(below(bytes.size()), bytes.substr(at, count));
      return;
    case 5: {
      const std::string& other = one_of(others_);
      bytes.replace(at, count, other.substr(below(other.size()), 1 + below(60)));
      return;
    }
    case 6:
      return change_token(bytes, is_digit, is_digit, kNumbers);
    default:
      return change_token(bytes, is_quote, is_no_quote, kWords);
  }
}

std::string Mutator::text(std::string bytes) {
  for (std::size_t changes = 1 + below(3); changes > 0; --changes) change(bytes);
  return bytes;
}

std::string Mutator::safetensors(const std::string& bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length || below(16) == 0) return text(bytes);
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::size_t cut = std::min<std::uint64_t>(length, bytes.size() - sizeof length);
  std::string header = text(bytes.substr(sizeof length, cut));
  std::string data = bytes.substr(sizeof length + cut);
  if (below(8) == 0) change(data);
  length = below(12) == 0 ? one_of(kLengths) : header.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  return out + header + data;
}

}  // namespace sluice::checkpoint
