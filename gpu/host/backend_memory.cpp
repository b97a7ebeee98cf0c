#include "gpu/backend_memory.h"

#include <sys/mman.h>

namespace sluice::gpu::backend {
namespace {

std::byte* map(Bytes n) noexcept {
  void* data = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

}  // namespace

// The device's memory is DRAM too, and nothing reads it from outside: no page needs to be pinned.
std::byte* take_device_memory(Bytes n) noexcept {
  return map(n);
}
void give_device_memory(std::byte* data, Bytes n) noexcept {
  munmap(data, n);
}

std::byte* take_pinned_memory(Bytes n) noexcept {
  return map(n);
}
void give_pinned_memory(std::byte* data, Bytes n) noexcept {
  munmap(data, n);
}

}  // namespace sluice::gpu::backend
