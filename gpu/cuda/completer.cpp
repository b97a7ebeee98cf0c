#include "gpu/cuda/completer.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "gpu/cuda/answer.h"

namespace sluice::gpu::cuda {

Completer::Completer(std::string lane, cudaStream_t stream)
    : lane_(std::move(lane)), stream_(stream) {
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& e) {
    throw Error(Errc::kEnv,
                fmt::format("no thread for the stream {}: {}; raise `ulimit -u`", lane_, e.what()));
  }
}

Completer::~Completer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Completer::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
}

std::optional<Completer::Item> Completer::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
  if (queue_.empty()) return std::nullopt;
  std::optional<Item> item(std::move(queue_.front()));
  queue_.pop_front();
  return item;
}

void Completer::serve() {
  name_this_thread(lane_);
  while (auto item = next()) finish(std::move(*item));
}

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
