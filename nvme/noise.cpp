#include "nvme/noise.h"

#include <cstring>
#include <random>

namespace sluice::nvme {

void fill_with_noise(std::span<std::byte> memory, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(memory.data() + at, &word, sizeof(word));
  }
}

}  // namespace sluice::nvme
