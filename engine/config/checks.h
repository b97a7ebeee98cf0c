/// What one key alone cannot tell: checks over several, and the values that follow from them.
#pragma once

#include <map>
#include <string>

#include "engine/config/config.h"

namespace sluice::config {

/// Where each key was set: full path -> "run.yaml:14:5".
using Places = std::map<std::string, std::string, std::less<>>;

/// Throws kConfig at the place of the key to change. Fills in the batch sizes and adds warnings.
/// `file` stands in for the place of a key that is not set.
void check_together(Config& config, const Places& places, const std::string& file);

}  // namespace sluice::config
