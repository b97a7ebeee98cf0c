#include "engine/train/first_touch.h"

#include "gpu/device.h"
#include "gpu/local.h"

namespace sluice::train {
namespace {

void touch(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kAlignment) {
    *const_cast<volatile std::byte*>(bytes.data() + at) = std::byte{0};
  }
}

void touch(std::span<std::byte> bytes, const cpu_adam::Optimizer& optimizer) {
  static_assert(kGrainElems % kAlignment == 0);  // no page is two threads'
  optimizer.for_grains(bytes.size(), [bytes](std::size_t begin, std::size_t end) {
    touch(bytes.subspan(begin, end - begin));
  });
}

}  // namespace

void first_touch(const memory::SlotMemory& memory, gpu::Stream& compute,
                 const cpu_adam::Optimizer& optimizer) {
  for (prefetch::PoolId pool = 0; pool < memory.pools().size(); ++pool) {
    const std::span<std::byte> bytes = memory.bytes(pool);
    if (bytes.empty()) continue;
    if (memory.pools()[pool].tier != prefetch::Tier::kGpu) {
      touch(bytes, optimizer);
    } else if (gpu::device().unified) {
      compute.run([&] { touch(gpu::local(bytes), optimizer); }).ticket().wait();
    }
  }
}

}  // namespace sluice::train
