/// What stands before the ids of a token file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/data/descriptor.h"

namespace sluice::data {

struct TokenHeader {
  std::uint64_t bytes = 0;  ///< of the header
  std::int64_t tokens = 0;  ///< that it promises
  int width = 2;            ///< bytes of an id
  bool is_signed = false;
};

/// The header of NumPy's format, versions 1 to 3: a one-dimensional array of little-endian
/// integers. Throws kFormat for any other array, and for what is none.
TokenHeader read_npy_header(const Descriptor& file, const std::string& path);

/// The header of llm.c, of 256 numbers; nullopt when the file does not begin as one does. Throws
/// kFormat for one of another version, and where the file ends within it.
std::optional<TokenHeader> read_llmc_header(const Descriptor& file, const std::string& path);

}  // namespace sluice::data
