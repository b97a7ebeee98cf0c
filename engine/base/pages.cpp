#include "engine/base/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <new>

#include "engine/base/nodes.h"

namespace sluice {
namespace {

// Fewer entries to look up pays where memory is walked through; below some of them, it does not.
constexpr Bytes kEnough = 2 * kLargePage;

std::byte* map(Bytes n) noexcept {
  void* data = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

}  // namespace

std::byte* map_pages(Bytes n) noexcept {
  if (n > std::numeric_limits<Bytes>::max() - 2 * kLargePage) return nullptr;
  n = round_up(n, kAlignment);
  if (n < kEnough) return map(n);
  // Older kernels begin a mapping anywhere: take one page more, and give back what is too much.
  std::byte* taken = map(n + kLargePage);
  if (taken == nullptr) return nullptr;
  const Bytes before = round_up(reinterpret_cast<std::uintptr_t>(taken), kLargePage) -
                       reinterpret_cast<std::uintptr_t>(taken);
  std::byte* data = taken + before;
  if (before > 0) munmap(taken, before);
  if (before < kLargePage) munmap(data + n, kLargePage - before);
  advise_pages(data, n);
  return data;
}

void advise_pages(std::byte* data, Bytes n) noexcept {
  madvise(data, n, MADV_HUGEPAGE);  // refused where the kernel has none: then small ones do
  spread_over_nodes(data, n);
}

void unmap_pages(std::byte* data, Bytes n) noexcept {
  munmap(data, n);
}

PageBytes take_pages(Bytes n) {
  std::byte* data = map_pages(n);
  if (data == nullptr) throw std::bad_alloc();
  return {data, UnmapPages{n}};
}

}  // namespace sluice
