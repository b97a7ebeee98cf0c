/// What a folder lies on, before anything is written there.
///
/// Thread  any
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/units.h"

namespace sluice::nvme {

enum class Medium : std::uint8_t {
  kDrive,
  kRam  ///< tmpfs, ramfs, hugetlbfs: what is "written" there stays in memory
};

struct Filesystem {
  std::string type;  ///< "ext4", "tmpfs", ...; the magic number of one that is not known
  Medium medium = Medium::kDrive;
  std::uint64_t device = 0;  ///< equal for folders that share their free bytes
  Bytes free = 0;            ///< for this user
};

/// `path`, or its nearest parent that exists: where something that is to be made would begin.
std::string nearest_existing(const std::string& path);

/// The filesystem of `path`, or of its nearest parent that exists.
///
/// Throws  kIo
Filesystem filesystem_of(const std::string& path);
/// Those of several paths, each once, in the order of its first path.
std::vector<Filesystem> filesystems_of(const std::vector<std::string>& paths);

/// Bytes that this user may still write at `path` (or would, once it exists).
Bytes free_bytes(const std::string& path);

/// The same over several folders; those of one filesystem count once.
Bytes free_bytes(const std::vector<std::string>& paths);

/// Growing a file past `ulimit -f` does not fail but kills the process, so ask before.
///
/// Throws  kBudget with both sizes when a file of `n` bytes at `path` is more than it allows
void check_file_size(const std::string& path, Bytes n);

}  // namespace sluice::nvme
