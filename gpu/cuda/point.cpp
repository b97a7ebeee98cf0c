#include "gpu/cuda/point.h"

#include <algorithm>
#include <optional>

#include "gpu/cuda/answer.h"

namespace sluice::gpu::cuda {
namespace {

// How much slower than ours the device's clock may run. Quartz differs by less.
constexpr double kDrift = 1e-4;

/// nullopt: the device does not say.
std::optional<Nanos> nanos_between(const Point& begin, const Point& end) {
  float ms = 0;
  if (!holds(cudaEventElapsedTime(&ms, begin.get(), end.get()))) return std::nullopt;
  return static_cast<Nanos>(ms * 1e6);
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
  const auto since = last_ ? nanos_between(last_, ended) : std::nullopt;
  if (since) {
    const auto at_most = static_cast<double>(*since) * (1 + kDrift);
    at = std::min(now, last_at_ + static_cast<Nanos>(at_most));
  }
  Span span{.began = 0, .ended = at};
  const auto took = began ? nanos_between(began, ended) : std::nullopt;
  if (took) span.began = std::max(at - *took, last_at_);
  last_ = ended;
  last_at_ = at;
  return span;
}

}  // namespace sluice::gpu::cuda
