#include "gpu/backend_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "engine/base/log.h"
#include "gpu/cuda/answer.h"
#include "gpu/local.h"
#include "gpu/memory.h"

namespace sluice::gpu {
namespace {

/// Which host memory the device has pinned. It pins whole pages where they are, so that memory
/// keeps its huge pages, and nothing is rounded up to a power of two, as cudaHostAlloc's pools are.
class Pinned {
 public:
  void set_limit(Bytes limit) {
    const std::lock_guard lock(mutex_);
    limit_ = limit;
  }

  void pin(std::byte* data, Bytes n) noexcept {
    const std::lock_guard lock(mutex_);
    if (n > limit_ - std::min(limit_, pinned_)) {
      say_once(limit_said_, fmt::format("{} more would exceed tiers.cpu.pinned_limit: this and "
                                        "what else exceeds it is plain memory, and copies from it "
                                        "are slower",
                                        format_bytes(n)));
      return;
    }
    const cudaError_t answer = cudaHostRegister(data, n, cudaHostRegisterPortable);
    if (cuda::holds(answer)) {
      pinned_ += n;
      return;
    }
    say_once(refusal_said_,
             fmt::format("the driver refused {} more ({}): this and what else it refuses is plain "
                         "memory, and copies from it are slower. In a container raise `ulimit -l` "
                         "(--ulimit memlock=-1), under WSL `memory=` in .wslconfig; or lower "
                         "tiers.cpu.limit",
                         format_bytes(n), cuda::text_of(answer)));
  }

  void unpin(std::byte* data, Bytes n) noexcept {
    const std::lock_guard lock(mutex_);
    if (cuda::holds(cudaHostUnregister(data))) pinned_ -= n;  // no: it never was pinned
  }

 private:
  void say_once(bool& said, const std::string& why) {
    if (std::exchange(said, true)) return;
    log::warning(fmt::format("pinned memory: there is {}, and {}", format_bytes(pinned_), why));
  }

  std::mutex mutex_;
  Bytes limit_ = std::numeric_limits<Bytes>::max();
  Bytes pinned_ = 0;
  bool limit_said_ = false;
  bool refusal_said_ = false;
};

Pinned& pinned() {
  static auto* const all = new Pinned;  // memory may be given back until the very end
  return *all;
}

}  // namespace

std::byte* local(std::byte* address) {
  return address;
}

void set_pinned_limit(Bytes limit) {
  pinned().set_limit(limit);
}

namespace backend {

// No host code reaches memory of cudaMalloc, whatever reach is asked for.
DeviceMemory take_device_memory(Bytes n, Reach) noexcept {
  constexpr Bytes kPromised = 256;  // what the runtime begins on; we promise more
  void* first = nullptr;
  if (!cuda::holds(cudaMalloc(&first, n + kAlignment - kPromised))) return {};
  auto* const taken = static_cast<std::byte*>(first);
  const auto at = reinterpret_cast<std::uintptr_t>(first);
  return {taken + (round_up(at, kAlignment) - at), taken};
}
void give_device_memory(const DeviceMemory& memory, Bytes) noexcept {
  cuda::holds(cudaFree(memory.taken));
}

void pin(std::byte* data, Bytes n) noexcept {
  pinned().pin(data, n);
}
void unpin(std::byte* data, Bytes n) noexcept {
  pinned().unpin(data, n);
}

}  // namespace backend
}  // namespace sluice::gpu
