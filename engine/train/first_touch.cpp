#include "engine/train/first_touch.h"

#include "cpu_adam/workers.h"
#include "gpu/device.h"
#include "gpu/local.h"

namespace sluice::train {
namespace {

void touch(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kAlignment) {
    *const_cast<volatile std::byte*>(bytes.data() + at) = std::byte{0};
  }
}

template <class Threads>
void touch(std::span<std::byte> bytes, const Threads& threads) {
  static_assert(kGrainElems % kAlignment == 0);  // no page is two threads'
  threads.for_grains(bytes.size(), [bytes](std::size_t begin, std::size_t end) {
    touch(bytes.subspan(begin, end - begin));
  });
}

}  // namespace

void first_touch(const memory::SlotMemory& memory, const cpu_adam::Optimizer& optimizer,
                 gpu::Stream& compute, unsigned compute_threads) {
  const cpu_adam::Workers workers(compute_threads);
  for (prefetch::PoolId pool = 0; pool < memory.pools().size(); ++pool) {
    const std::span<std::byte> bytes = memory.bytes(pool);
    if (bytes.empty()) continue;
    if (memory.pools()[pool].tier != prefetch::Tier::kGpu) {
      touch(bytes, optimizer);
    } else if (gpu::device().unified) {
      compute.run([&] { touch(gpu::local(bytes), workers); }).ticket().wait();
    }
  }
}

}  // namespace sluice::train
