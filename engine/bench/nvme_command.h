/// `sluice bench nvme PATH...`: how fast drives are, and which values of `aio:` get that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/bench/uses.h"

namespace sluice::bench {

enum class Effort : std::uint8_t { kQuick, kUsual, kFull };

struct NvmeArguments {
  std::vector<std::string> paths;
  bool quick = false, full = false;
  bool steady = false, read_only = false, all = false, quiet = false, allow_ram = false;
  std::string file_size, max_write;  ///< with units; empty: as the effort says
  double seconds = 0;                ///< for each drive; 0: as the effort says
  std::string json;                  ///< a file; empty: none
  Uses uses;
};

/// Returns the exit code: 0 only when all that was read was what had been written, 128 + n when
/// signal n ended it.
///
/// Throws  kConfig for arguments that cannot be; as place_of(), require_room() and run_drive()
int nvme(const NvmeArguments& arguments);

}  // namespace sluice::bench
