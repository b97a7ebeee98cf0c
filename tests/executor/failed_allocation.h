/// Makes one `operator new` of the test program throw std::bad_alloc.
#pragma once

#include <cstdint>

namespace sluice::testing {

/// While it lives, allocation number `n` from its beginning fails; allocations are counted on the
/// thread that made it, or on all others. One at a time.
class FailedAllocation {
 public:
  enum class On : std::uint8_t { kThisThread, kOtherThreads };
  FailedAllocation(std::int64_t n, On on);
  ~FailedAllocation();
  FailedAllocation(const FailedAllocation&) = delete;
  FailedAllocation& operator=(const FailedAllocation&) = delete;

  bool happened() const;
};

}  // namespace sluice::testing
