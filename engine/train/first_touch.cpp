#include "engine/train/first_touch.h"

#include <algorithm>

#include "gpu/device.h"
#include "gpu/local.h"

namespace sluice::train {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;

void touch(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kAlignment) {
    *const_cast<volatile std::byte*>(bytes.data() + at) = std::byte{0};
  }
}

/// Piece by piece, so that the zeros are few and yet enough for all threads to have some.
void touch(std::span<std::byte> bytes, const cpu_adam::Optimizer& optimizer) {
  const std::vector<float> zeros(std::min<std::size_t>(16_MiB, bytes.size()) / sizeof(float));
  const std::span floats(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  for (std::size_t at = 0; at < floats.size(); at += zeros.size()) {
    const std::size_t n = std::min(zeros.size(), floats.size() - at);
    optimizer.assign(floats.subspan(at, n), std::span(zeros).first(n));
  }
}

}  // namespace

void first_touch(const memory::SlotMemory& memory, const std::vector<MemoryTag>& tags,
                 gpu::Stream& compute, const cpu_adam::Optimizer& optimizer) {
  for (prefetch::PoolId pool = 0; pool < memory.pools().size(); ++pool) {
    const std::span<std::byte> bytes = memory.bytes(pool);
    if (bytes.empty()) continue;
    if (memory.pools()[pool].tier == Tier::kGpu) {
      if (!gpu::device().unified) continue;
      compute.run([bytes] { touch(gpu::local(bytes)); }).ticket().wait();
    } else if (tags[pool] == MemoryTag::kState || tags[pool] == MemoryTag::kGradient) {
      touch(bytes, optimizer);
    } else {
      touch(bytes);
    }
  }
}

}  // namespace sluice::train
