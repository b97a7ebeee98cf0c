/// What the field table says, for people, editors and the next load.
#pragma once

#include <string>

#include "engine/config/config.h"

namespace sluice::config {

/// Every key with its value (config.resolved.yaml). Loads back to the same Config; the text is the
/// same for equal Configs.
std::string to_yaml(const Config& config);

/// JSON Schema (draft 7) of the run file: completion and checks in editors.
std::string schema();

/// docs/config.md.
std::string reference_markdown();

}  // namespace sluice::config
