/// The header of a safetensors file: which tensor lies where.
///
/// Layout  u64 length of the JSON (little-endian), the JSON padded with spaces so that what follows
///         begins on a multiple of 8 bytes or more, the data
/// Units   bytes; `begin` and `end` count from the start of the data
/// Throws  kFormat, naming the file and the reason, for anything that is no such header: too long,
///         no JSON, a tensor out of range, of the wrong size, overlapping another, a hole, or
///         metadata that is no text
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/units.h"

namespace sluice::checkpoint {

/// Readers elsewhere refuse longer ones too.
inline constexpr Bytes kMaxHeader = 100'000'000;

struct Entry {
  std::string name;
  std::string dtype;  ///< as written: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  Bytes begin = 0;
  Bytes end = 0;

  std::uint64_t numel() const;
};

/// "F32", "BF16" or "F16".
std::string_view dtype_name(DType dtype);

/// The entries in the order of their data. `data_bytes` is what the file holds after the header;
/// `file` is for messages.
std::vector<Entry> parse_header(std::string_view json, Bytes data_bytes, std::string_view file);

/// Length, JSON and padding, for entries in the order of their data, which begins on a multiple of
/// `alignment`.
std::string make_header(const std::vector<Entry>& entries, Bytes alignment = 8);

}  // namespace sluice::checkpoint
