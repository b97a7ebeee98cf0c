/// What somebody probably meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/value.h"

namespace sluice::config {

/// The candidate that is a slip of the finger away from `text`; nullopt when none is.
std::optional<std::string> nearest(std::string_view text,
                                   const std::vector<std::string>& candidates);

/// For an unknown key at `path`: the known key that is spelled alike, else the one of the same name
/// in another section, else the names that its section does have. `value` is what was put there: a
/// whole section in a wrong place is recognised by it.
std::string hint_for(std::string_view path, const Value& value);

}  // namespace sluice::config
