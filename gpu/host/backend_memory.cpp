#include "gpu/backend_memory.h"

#include "engine/base/pages.h"

namespace sluice::gpu::backend {

// The device's memory is DRAM too, and nothing reads it from outside: no page needs to be pinned.
std::byte* take_device_memory(Bytes n) noexcept {
  return map_pages(n);
}
void give_device_memory(std::byte* data, Bytes n) noexcept {
  unmap_pages(data, n);
}

std::byte* take_pinned_memory(Bytes n) noexcept {
  return map_pages(n);
}
void give_pinned_memory(std::byte* data, Bytes n) noexcept {
  unmap_pages(data, n);
}

}  // namespace sluice::gpu::backend
