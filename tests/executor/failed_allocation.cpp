#include "tests/executor/failed_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace sluice::testing {
namespace {

std::atomic<bool> armed{false};
std::atomic<bool> on_own_thread{false};
std::atomic<std::int64_t> left{0};  // allocations before the one that fails; then negative
thread_local bool own_thread = false;

bool fails_now() {
  return armed && own_thread == on_own_thread && left.fetch_sub(1) == 0;
}

}  // namespace

FailedAllocation::FailedAllocation(std::int64_t n, On on) {
  own_thread = true;
  on_own_thread = on == On::kThisThread;
  left = n;
  armed = true;
}

FailedAllocation::~FailedAllocation() {
  armed = false;
  own_thread = false;
}

bool FailedAllocation::happened() const {
  return left < 0;
}

}  // namespace sluice::testing

// These replace the library's in the whole program; the other forms call them.
void* operator new(std::size_t bytes) {
  void* memory = sluice::testing::fails_now() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
