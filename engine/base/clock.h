/// One monotonic clock for every span, so that tracks line up.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

using Nanos = std::int64_t;

inline Nanos now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr double to_seconds(Nanos n) {
  return static_cast<double>(n) * 1e-9;
}

}  // namespace sluice
