/// From a parsed document to a Config, by the field table.
#pragma once

#include <string>

#include "engine/config/config.h"
#include "engine/config/load.h"
#include "engine/config/value.h"

namespace sluice::config {

/// Throws kConfig for an unknown key, a wrong value, or values that do not go together.
Config read_config(const Value& root, const Environment& environment, const std::string& file);

}  // namespace sluice::config
