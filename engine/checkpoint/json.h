/// JSON from a file that nobody vouches for.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace sluice::checkpoint {

/// Throws kFormat, naming `file`, when `text` is no JSON, has a key twice in one table, is nested
/// deeper than a list of tensors ever is, or has more values than the largest.
nlohmann::json parse_bounded_json(std::string_view text, std::string_view file);

}  // namespace sluice::checkpoint
