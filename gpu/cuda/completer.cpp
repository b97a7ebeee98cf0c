#include "gpu/cuda/completer.h"

#include <utility>

#include "gpu/cuda/answer.h"

namespace sluice::gpu::cuda {

Completer::Completer(std::string lane, cudaStream_t stream)
    : lane_(std::move(lane)),
      stream_(stream),
      worker_(lane_, [this](Item item) { finish(std::move(item)); }) {}

/// Until it has ended; what failed.
std::exception_ptr Completer::wait(const Item& item) const noexcept {
  Ticket::all(item.after).wait_error();  // what failed there is in item.error, or all has failed
  // Without a point of its own an item has ended when all else on the stream has.
  const cudaError_t answer =
      item.ended ? cudaEventSynchronize(item.ended.get()) : cudaStreamSynchronize(stream_);
  try {
    check(answer, lane_);
  } catch (...) {
    return std::current_exception();
  }
  return item.error;
}

void Completer::finish(Item item) {
  const std::exception_ptr failed = wait(item);
  const Nanos now = now_ns();
  if (!error_) error_ = failed;
  if (error_) return item.done.fail(error_, now);
  const DeviceClock::Span span = clock_.place(item.began, item.ended, now);
  if (item.began) item.done.begin(span.began);
  item.done.finish(span.ended);
}

}  // namespace sluice::gpu::cuda
