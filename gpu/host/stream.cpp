#include "gpu/stream.h"

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gpu/backend_stream.h"
#include "gpu/local.h"
#include "gpu/worker.h"

namespace sluice::gpu {

double seconds_between(const Event& begin, const Event& end) {
  backend::check_reached(begin, end);
  return to_seconds(end.ticket().ended() - begin.ticket().ended());
}

namespace {

/// One thing to do: first wait, then work; either may be empty.
struct Item {
  Ticket after;
  std::function<void()> work;
  TicketSource done;
};

}  // namespace

struct Stream::State {
  explicit State(std::string_view lane_in)
      : lane(lane_in), worker(lane, [this](Item item) { serve(std::move(item)); }) {}

  Ticket enqueue(Ticket after, std::function<void()> work) {
    TicketSource done;
    Ticket ticket = done.ticket();
    worker.push({std::move(after), std::move(work), std::move(done)});
    return ticket;
  }

  void serve(Item item) {
    if (auto failed = item.after.wait_error(); failed && !error) error = failed;
    if (item.work && !error) {
      item.done.begin();
      try {
        item.work();
      } catch (...) {
        error = std::current_exception();
      }
    }
    item.work = nullptr;
    if (error) {
      item.done.fail(error);
    } else {
      item.done.finish();
    }
  }

  const std::string lane;
  std::exception_ptr error;  // the first; it stays; the worker's
  backend::Worker<Item> worker;
};

Stream::Stream(std::string_view lane) : state_(std::make_unique<State>(lane)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream::~Stream() = default;

Event Stream::copy(void* dst, const void* src, Bytes n) {
  backend::check_copy(state_->lane, dst, src, n);
  if (n == 0) return record();
  auto* to = static_cast<std::byte*>(dst);
  auto* from = static_cast<std::byte*>(const_cast<void*>(src));
  return Event(state_->enqueue({}, [=] { std::memcpy(local(to), local(from), n); }));
}

Event Stream::run(std::function<void()> work) {
  backend::check_work(state_->lane, work);
  return Event(state_->enqueue({}, std::move(work)));
}

Event Stream::record() {
  return Event(state_->enqueue({}, nullptr));
}

void Stream::wait(const Event& e) {
  state_->enqueue(e.ticket(), nullptr);
}

}  // namespace sluice::gpu
