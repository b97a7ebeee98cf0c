#include "gpu/backend_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "engine/base/pages.h"
#include "gpu/local.h"
#include "gpu/memory.h"

namespace sluice::gpu {
namespace {

/// Memory that goes by addresses at which nothing may be touched.
class Hidden {
 public:
  /// Null when the system has no addresses left.
  std::byte* hide(std::byte* data, Bytes n) {
    void* p = mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    auto* name = static_cast<std::byte*>(p);
    const std::unique_lock lock(mutex_);
    places_[name] = {data, n};
    any_ = true;
    return name;
  }

  /// An address that hide() gave.
  void reveal(std::byte* name, Bytes n) {
    const std::unique_lock lock(mutex_);
    places_.erase(name);
    munmap(name, n);
  }

  std::byte* local(std::byte* address) const {
    if (!any_) return address;
    const std::shared_lock lock(mutex_);
    const auto after = places_.upper_bound(address);
    if (after == places_.begin()) return address;
    const auto& [name, place] = *std::prev(after);
    return address < name + place.size ? place.data + (address - name) : address;
  }

 private:
  struct Place {
    std::byte* data;
    Bytes size;
  };
  std::map<std::byte*, Place, std::less<>> places_;  // by the address it goes by
  mutable std::shared_mutex mutex_;
  std::atomic<bool> any_{false};
};

Hidden& hidden() {
  static auto* const all = new Hidden;  // memory may be given back until the very end
  return *all;
}

}  // namespace

std::byte* local(std::byte* address) {
  return hidden().local(address);
}

void set_pinned_limit(Bytes) {}

namespace backend {

// The device's memory is DRAM too, and nothing reads it from outside: no page needs to be pinned.
DeviceMemory take_device_memory(Bytes n, Reach reach) noexcept {
  std::byte* data = map_pages(n);
  if (data == nullptr || reach == Reach::kHostToo) return {data, data};
  std::byte* name = hidden().hide(data, n);
  if (name == nullptr) unmap_pages(data, n);
  return {name, data};
}
void give_device_memory(const DeviceMemory& memory, Bytes n) noexcept {
  if (memory.data != memory.taken) hidden().reveal(memory.data, n);
  unmap_pages(memory.taken, n);
}

void pin(std::byte*, Bytes) noexcept {}
void unpin(std::byte*, Bytes) noexcept {}

}  // namespace backend
}  // namespace sluice::gpu
