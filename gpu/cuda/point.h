/// Points in a CUDA stream, and when it came to them.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "engine/base/clock.h"

namespace sluice::gpu::cuda {

/// An event of the runtime, recorded once. Null: the device refused one, and the stream has failed.
using Point = std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>;

/// Recorded on `stream` now. Whoever waits for it sleeps; it is never polled.
///
/// Throws  kDevice
Point record_point(cudaStream_t stream);

/// By the device's clock. Both have been reached.
///
/// Throws  kDevice
double seconds_between(const Point& begin, const Point& end);

/// Tells in now_ns() when one stream came to its points.
///
/// The device counts time by itself, and only from one event to another. What is known of an event
/// in now_ns() is that it was reached before its waiter woke, and by the device's count after the
/// event before it. The earlier of the two is right within a wake-up's time, also after hours and
/// for many short works that one wake-up tells of.
///
/// Thread  one at a time
class DeviceClock {
 public:
  struct Span {
    Nanos began = 0;
    Nanos ended = 0;
  };
  /// Points in the order of the stream, reached by `now`. Without `began` its time is 0.
  Span place(const Point& began, const Point& ended, Nanos now);

 private:
  Point last_;
  Nanos last_at_ = 0;
};

}  // namespace sluice::gpu::cuda
