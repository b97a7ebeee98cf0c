/// Bytes as the backend hands them out: what `memory.cpp` builds on, for this room only.
///
/// Sizes are multiples of kAlignment above zero, addresses too. Null when there is no memory left.
#pragma once

#include <cstddef>

#include "engine/base/units.h"

namespace sluice::gpu::backend {

std::byte* take_device_memory(Bytes n) noexcept;
void give_device_memory(std::byte* data, Bytes n) noexcept;

std::byte* take_pinned_memory(Bytes n) noexcept;
void give_pinned_memory(std::byte* data, Bytes n) noexcept;

}  // namespace sluice::gpu::backend
