#include "gpu/backend_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>

namespace sluice::gpu::backend {
namespace {

// Fewer entries to look up pays where memory is walked through; below some of them, it does not.
constexpr Bytes kHugePage = 2_MiB;
constexpr Bytes kLarge = 2 * kHugePage;

std::byte* map_pages(Bytes n) noexcept {
  void* data = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

std::byte* map(Bytes n) noexcept {
  if (n < kLarge) return map_pages(n);
  if (n > std::numeric_limits<Bytes>::max() - kHugePage) return nullptr;
  // Older kernels begin a mapping anywhere: take one page more, and give back what is too much.
  std::byte* taken = map_pages(n + kHugePage);
  if (taken == nullptr) return nullptr;
  const Bytes before = round_up(reinterpret_cast<std::uintptr_t>(taken), kHugePage) -
                       reinterpret_cast<std::uintptr_t>(taken);
  std::byte* data = taken + before;
  if (before > 0) munmap(taken, before);
  if (before < kHugePage) munmap(data + n, kHugePage - before);
  madvise(data, n, MADV_HUGEPAGE);  // refused where the kernel has none: then small ones do
  return data;
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
