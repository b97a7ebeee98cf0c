/// The accelerator of this process.
#pragma once

#include <string>

#include "engine/base/units.h"
#include "gpu/options.h"

namespace sluice::gpu {

struct Device {
  std::string name;      ///< as its maker calls it
  Bytes memory = 0;      ///< all of it, before anyone's budget
  bool unified = false;  ///< its memory is host memory: bytes need not be copied to be reached
  /// Operations per second in products of 16-bit numbers with fp32 sums, as its maker says (dense);
  /// 0 = not known here.
  double peak_flops = 0;
  Backend backend = Backend::kHost;
};

/// Throws  kDevice when it cannot be reached
Device device();

/// What nobody has taken of its memory, this process or another.
///
/// Throws  kDevice when it cannot be reached
Bytes free_memory();

}  // namespace sluice::gpu
