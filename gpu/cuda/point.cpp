#include "gpu/cuda/point.h"

#include <algorithm>

#include "gpu/cuda/answer.h"

namespace sluice::gpu::cuda {
namespace {

// How much slower than ours the device's clock may run. Quartz differs by less.
constexpr double kDrift = 1e-4;

Nanos nanos_between(const Point& begin, const Point& end) {
  float ms = 0;
  return holds(cudaEventElapsedTime(&ms, begin.get(), end.get())) ? static_cast<Nanos>(ms * 1e6)
                                                                  : 0;
}

}  // namespace

Point record_point(cudaStream_t stream) {
  cudaEvent_t made = nullptr;
  check(cudaEventCreateWithFlags(&made, cudaEventBlockingSync), "asked for an event");
  Point point(made, [](cudaEvent_t event) { holds(cudaEventDestroy(event)); });
  check(cudaEventRecord(made, stream), "asked to record an event");
  return point;
}

double seconds_between(const Point& begin, const Point& end) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "asked for the time between two events");
  return static_cast<double>(ms) * 1e-3;
}

DeviceClock::Span DeviceClock::place(const Point& began, const Point& ended, Nanos now) {
  Nanos at = now;
  if (last_) {
    const auto since = static_cast<double>(nanos_between(last_, ended)) * (1 + kDrift);
    at = std::min(now, last_at_ + static_cast<Nanos>(since));
  }
  Span span{.began = 0, .ended = at};
  if (began) span.began = std::max(at - nanos_between(began, ended), last_at_);
  last_ = ended;
  last_at_ = at;
  return span;
}

}  // namespace sluice::gpu::cuda
