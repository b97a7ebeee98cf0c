/// A token set as `sluice data tokenize` writes it (docs/data.md).
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace sluice::test {

/// Little-endian, whatever the machine.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
    }
  }
  return bytes;
}

/// The tokens that are targets: all but the first of each document, as far as `mask` marks them.
inline std::int64_t targets_of(const std::vector<std::int64_t>& ends, const std::string& mask) {
  std::int64_t targets = 0, begin = 0;
  for (const std::int64_t end : ends) {
    for (std::int64_t at = begin + 1; at < end; ++at) {
      targets += mask.empty() || mask[static_cast<std::size_t>(at)] != 0 ? 1 : 0;
    }
    begin = end;
  }
  return targets;
}

/// `mask`: a byte for each token, 0 or 1; empty: none is written.
inline void write_token_set(const TempFolder& folder, const std::string& name,
                            const std::vector<std::uint16_t>& ids,
                            const std::vector<std::int64_t>& ends, const std::string& mask,
                            const std::string& more = "") {
  folder.write(name + ".bin", bytes_of(ids));
  folder.write(name + ".documents", bytes_of(ends));
  if (!mask.empty()) folder.write(name + ".mask", mask);
  folder.write(
      name + ".json",
      fmt::format(R"({{"sluice_tokens": 1, "dtype": "uint16", "tokens": {}, "documents": {},
                               "targets": {}, "masked": {}, "vocab": 100{}}})",
                  ids.size(), ends.size(), targets_of(ends, mask), !mask.empty(), more));
}

}  // namespace sluice::test
