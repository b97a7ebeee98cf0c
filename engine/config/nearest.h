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

/// For an unknown key at `path`, of the `keys` that there are: the one that is spelled alike, else
/// the one of the same name in another section, else the names that its section does have (`whole`
/// is what has those without a section). `value` is what was put there: a whole section in a wrong
/// place is recognised by it.
std::string hint_for(std::string_view path, const Value& value,
                     const std::vector<std::string>& keys, std::string_view whole);

}  // namespace sluice::config
