/// Bytes as the backend hands them out: what `memory.cpp` builds on, for this room only.
///
/// Sizes are multiples of kAlignment above zero, addresses too.
#pragma once

#include <cstddef>

#include "engine/base/units.h"
#include "gpu/memory.h"

namespace sluice::gpu::backend {

/// Null when there is no memory left.
struct DeviceMemory {
  std::byte* data = nullptr;   ///< what the host may not reach goes by an address of no memory
  std::byte* taken = nullptr;  ///< where the system says that it begins
};
DeviceMemory take_device_memory(Bytes n, Reach reach) noexcept;
void give_device_memory(const DeviceMemory& memory, Bytes n) noexcept;

/// Host memory, for copies at full speed. Makes the pages that are not there yet.
void pin(std::byte* data, Bytes n) noexcept;
/// Also what pin() could not.
void unpin(std::byte* data, Bytes n) noexcept;

}  // namespace sluice::gpu::backend
