/// What computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::gpu {

/// Which one a build has is chosen by CMake: SLUICE_GPU=host|cuda.
enum class Backend : std::uint8_t { kHost, kCuda };
constexpr std::string_view name_of(Backend backend) {
  return backend == Backend::kHost ? "host" : "cuda";
}

}  // namespace sluice::gpu
