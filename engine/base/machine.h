/// What the operating system says of the processors.
///
/// Thread  any
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/units.h"

namespace sluice {

/// nullopt where it has no name.
std::optional<std::string> cpu_model();

/// Of all caches of the third level together; 0 where the system does not say. `root` holds sys/: a
/// test has its own.
Bytes last_cache(const std::filesystem::path& root = "/");

/// That this process has used so far, in user and system.
double processor_seconds();

}  // namespace sluice
