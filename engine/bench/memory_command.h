/// `sluice bench adam` and `sluice bench copy`: what the optimizer and the copy lanes of a run make
/// of this machine's memory.
#pragma once

#include <string>

namespace sluice::bench {

struct MemoryArguments {
  bool quick = false, quiet = false;
  std::string most;   ///< parameters ("100M") or bytes of a buffer ("64MiB"); empty: as fits
  std::string dtype;  ///< of gradients and published weights, for adam: "bf16" or "fp32"
  std::string json;   ///< a file; empty: none
};

/// Both return the exit code: 0, or 128 + n when signal n ended it.
///
/// Throws  kConfig for arguments that cannot be; kBudget when there is not that much memory; kIo
int adam(const MemoryArguments& arguments);
int copy(const MemoryArguments& arguments);

}  // namespace sluice::bench
