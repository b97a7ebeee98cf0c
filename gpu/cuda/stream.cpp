#include "gpu/stream.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "gpu/backend_stream.h"
#include "gpu/cuda/answer.h"
#include "gpu/cuda/completer.h"
#include "gpu/cuda/current.h"
#include "gpu/cuda/point.h"
#include "gpu/device.h"

namespace sluice::gpu {

struct Event::State {
  cuda::Point point;         // null when the device refused one: then there is an error
  std::exception_ptr error;  // of the stream, as far as it was known when this was enqueued
};

double seconds_between(const Event& begin, const Event& end) {
  backend::check_reached(begin, end);
  SLUICE_CHECK(begin.state_->point && end.state_->point, kDevice,
               "asked for the time between events of a stream that has failed");
  return cuda::seconds_between(begin.state_->point, end.state_->point);
}

namespace {

/// A stream of the runtime that is not ordered with the default one.
class Queue {
 public:
  Queue() {
    device();  // says what is wrong better than the runtime does
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "asked for a stream");
  }
  Queue(Queue&&) = delete;
  ~Queue() { cuda::holds(cudaStreamDestroy(stream_)); }

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

struct Stream::State {
  explicit State(std::string_view lane_in) : lane(lane_in), completer(lane, queue.get()) {}

  /// `work` is called now, unless the stream has failed, and launches what the event stands behind.
  /// What fails here fails the event, and what comes later.
  Event enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    TicketSource done;
    cuda::Point began;
    if (work && !error) attempt([&] { began = cuda::record_point(queue.get()); });
    if (work && !error) attempt(work);
    work = nullptr;
    cuda::Point ended;
    attempt([&] { ended = cuda::record_point(queue.get()); });
    Event event(done.ticket(), std::make_shared<Event::State>(Event::State{ended, error}));
    completer.push(
        {std::exchange(after, {}), std::move(began), std::move(ended), error, std::move(done)});
    return event;
  }

  void wait(const Event& event) {
    if (!event.state_) return;  // an empty one
    const auto& [point, failed] = *event.state_;
    const std::lock_guard lock(mutex);
    if (point) {  // one without has failed already: nothing comes behind it
      attempt([&] { cuda::check(cudaStreamWaitEvent(queue.get(), point.get(), 0), lane); });
    }
    after.push_back(event.ticket());
    if (!error) error = failed;
  }

  template <class F>
  void attempt(const F& f) {
    try {
      f();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }

  const std::string lane;
  std::recursive_mutex mutex;  // a work may enqueue on its own stream: the caller is inside then
  std::exception_ptr error;    // the first that is known; it stays
  std::vector<Ticket> after;   // of the events waited for since the last enqueued
  Queue queue;
  cuda::Completer completer;
};

Stream::Stream(std::string_view lane) : state_(std::make_unique<State>(lane)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream::~Stream() = default;

Event Stream::copy(void* dst, const void* src, Bytes n) {
  backend::check_copy(state_->lane, dst, src, n);
  if (n == 0) return record();
  return state_->enqueue([=, this] {
    cuda::check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDefault, state_->queue.get()), state_->lane);
  });
}

Event Stream::run(std::function<void()> work) {
  backend::check_work(state_->lane, work);
  return state_->enqueue([work = std::move(work), this] {
    const cuda::Current current(state_->queue.get());
    work();
    cuda::check(cudaGetLastError(), state_->lane);  // a launch itself answers nothing
  });
}

Event Stream::record() {
  return state_->enqueue(nullptr);
}

void Stream::wait(const Event& e) {
  state_->wait(e);
}

}  // namespace sluice::gpu
