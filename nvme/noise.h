/// Bytes that no drive can make smaller; the same for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::nvme {

/// `memory`  whole 8 bytes
void fill_with_noise(std::span<std::byte> memory, std::uint64_t seed);

}  // namespace sluice::nvme
