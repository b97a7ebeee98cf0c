#include "engine/bench/pattern.h"

#include <algorithm>
#include <cstring>

#include "nvme/noise.h"

namespace sluice::bench {

Pattern::Pattern(Bytes bytes, Bytes period, std::uint64_t seed)
    : period_(period),
      seed_(seed),
      noise_(nvme::allocate_aligned(period)),
      writes_(bytes / kAlignment, 0) {
  nvme::fill_with_noise({noise_.get(), period}, seed);
}

void Pattern::fill(std::span<std::byte> memory) const {
  while (!memory.empty()) {
    const std::size_t n = std::min<std::size_t>(memory.size(), period_);
    std::memcpy(memory.data(), noise_.get(), n);
    memory = memory.subspan(n);
  }
}

Pattern::Stamp Pattern::expected(Bytes offset) const {
  return {offset, seed_ + writes_[offset / kAlignment]};
}

void Pattern::stamp(std::span<std::byte> memory, Bytes offset) {
  for (Bytes at = 0; at < memory.size(); at += kAlignment) {
    ++writes_[(offset + at) / kAlignment];
    const Stamp stamp = expected(offset + at);
    std::memcpy(memory.data() + at, &stamp, sizeof(stamp));
  }
}

std::optional<Bytes> Pattern::first_wrong(std::span<const std::byte> memory, Bytes offset) const {
  for (Bytes at = 0; at < memory.size(); at += kAlignment) {
    const std::byte* block = memory.data() + at;
    const Stamp stamp = expected(offset + at);
    if (std::memcmp(block, &stamp, sizeof(stamp)) != 0) return offset + at;
    const std::byte* noise = noise_.get() + (offset + at) % period_;
    if (std::memcmp(block + sizeof(stamp), noise + sizeof(stamp), kAlignment - sizeof(stamp)) == 0)
      continue;
    const auto [wrong, unused] =
        std::mismatch(block + sizeof(stamp), block + kAlignment, noise + sizeof(stamp));
    return offset + at + static_cast<Bytes>(wrong - block);
  }
  return std::nullopt;
}

}  // namespace sluice::bench
