/// What the operating system says of the processors.
///
/// Thread  any
#pragma once

#include <optional>
#include <string>

namespace sluice {

/// nullopt where it has no name.
std::optional<std::string> cpu_model();

/// That this process has used so far, in user and system.
double processor_seconds();

}  // namespace sluice
