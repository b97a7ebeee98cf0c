/// The accelerator of this process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/units.h"

namespace sluice::gpu {

/// Which one a build has is chosen by CMake: SLUICE_GPU=host|cuda.
enum class Backend : std::uint8_t { kHost, kCuda };
constexpr std::string_view name_of(Backend backend) {
  return backend == Backend::kHost ? "host" : "cuda";
}

struct Device {
  Backend backend = Backend::kHost;
  std::string name;      ///< as its maker calls it
  Bytes memory = 0;      ///< all of it, before anyone's budget
  bool unified = false;  ///< its memory is host memory: bytes need not be copied to be reached
  /// Operations per second in products of 16-bit numbers with fp32 sums, as its maker says (dense);
  /// 0 = not known here.
  double peak_flops = 0;
};

/// Throws  kDevice when it cannot be reached
Device device();

/// What nobody has taken of its memory, this process or another.
///
/// Throws  kDevice when it cannot be reached
Bytes free_memory();

}  // namespace sluice::gpu
