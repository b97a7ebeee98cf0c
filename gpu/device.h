/// The accelerator of this process.
#pragma once

#include <string>

#include "engine/base/units.h"

namespace sluice::gpu {

struct Device {
  std::string name;      ///< as its maker calls it
  Bytes memory = 0;      ///< all of it, before anyone's budget
  bool unified = false;  ///< its memory is host memory: bytes need not be copied to be reached
};

/// Throws  kDevice when it cannot be reached
Device device();

/// What nobody has taken of its memory, this process or another.
///
/// Throws  kDevice when it cannot be reached
Bytes free_memory();

}  // namespace sluice::gpu
