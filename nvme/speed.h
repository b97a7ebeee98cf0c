/// How fast drives are: a short look, by writing and reading a file without a name on each path.
///
/// Thread  any
/// Throws  kIo and kBudget when a path cannot be written or has no room; kEnv as make_queue()
#pragma once

#include <string>
#include <vector>

#include "nvme/options.h"

namespace sluice::nvme {

/// Bytes per second of one direction.
struct Rate {
  double alone = 0;     ///< one request of kLookedAt bytes at a time
  double together = 0;  ///< several at a time, once that goes on; 0: too slow to be asked
};
struct Speed {
  Rate read, write;
  /// Beside other drives, where as much is read as is written.
  double both() const;
};

inline constexpr Bytes kLookedAt = 4_MiB;

/// Of each path by itself; each takes a second or less. A folder that is not there yet is looked at
/// in its nearest parent.
std::vector<Speed> look_at(const std::vector<std::string>& paths, const Options& options);

/// Of one drive that stands for all of them, striped by both(): paths of one filesystem are one
/// drive.
Speed together(const std::vector<std::string>& paths, const std::vector<Speed>& speeds);

}  // namespace sluice::nvme
