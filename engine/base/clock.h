/// One monotonic clock for every span, so that tracks line up; and what processors were used for.
#pragma once

#include <ctime>

#include <chrono>
#include <cstdint>

namespace sluice {

using Nanos = std::int64_t;

inline Nanos now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Time of processors that this process has used, all of its threads together.
inline Nanos processor_ns() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return Nanos{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

constexpr double to_seconds(Nanos n) {
  return static_cast<double>(n) * 1e-9;
}

}  // namespace sluice
