/// JSON from a file that nobody vouches for.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace sluice::checkpoint {

/// Throws kFormat, naming `file`, when `text` is no JSON or is nested deeper than a list of tensors
/// ever is.
nlohmann::json parse_bounded_json(std::string_view text, std::string_view file);

}  // namespace sluice::checkpoint
