/// What the operating system says of the processors.
///
/// Thread  any
#pragma once

#include <optional>
#include <string>

#include "engine/base/units.h"

namespace sluice {

/// nullopt where it has no name.
std::optional<std::string> cpu_model();

/// Of the cache of the last level that cores share; 0 where the system does not say.
Bytes last_cache();

/// That this process has used so far, in user and system.
double processor_seconds();

}  // namespace sluice
