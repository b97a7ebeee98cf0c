/// JSON from a file that nobody vouches for.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace sluice::checkpoint {

/// Of a list of tensors. A value takes up to a hundred bytes of memory for two of text; the largest
/// models have 100,000 tensors, each eight values.
inline constexpr std::size_t kMaxValues = std::size_t{1} << 21;

/// Throws kFormat, naming `file`, when `text` is no JSON, has a key twice in one table, is nested
/// deeper than a list of tensors ever is, or has more values and keys than `most`.
nlohmann::json parse_bounded_json(std::string_view text, std::string_view file,
                                  std::size_t most = kMaxValues);

}  // namespace sluice::checkpoint
