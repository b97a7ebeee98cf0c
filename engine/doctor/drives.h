/// How bytes get to the drives here, and what the folders of a run lie on.
///
/// Thread  one at a time
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/doctor/finding.h"

namespace sluice::doctor {

/// Of each engine whether it works.
std::vector<Finding> engines();

enum class Holds : std::uint8_t {
  kFiles,  ///< logs, weights
  kTier    ///< the nvme tier: must be a drive, and is fast with O_DIRECT
};

/// `key`: the run file's name for it. A folder that is not there yet is judged by its nearest
/// parent that is. Writes a block and reads it back, and leaves nothing.
Finding folder(const std::string& key, const std::string& path, Holds holds);

}  // namespace sluice::doctor
