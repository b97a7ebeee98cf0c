#include "gpu/stream.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "gpu/backend_stream.h"
#include "gpu/local.h"

namespace sluice::gpu {

struct Event::State {
  Ticket ticket;
};

bool Event::done() const {
  return !state_ || state_->ticket.done();
}

Ticket Event::ticket() const {
  return state_ ? state_->ticket : Ticket();
}

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
  explicit State(std::string_view lane_in) : lane(lane_in) {
    try {
      worker = std::thread([this] { serve(); });
    } catch (const std::system_error& e) {
      throw Error(Errc::kEnv, fmt::format("no thread for the stream {}: {}; raise `ulimit -u`",
                                          lane, e.what()));
    }
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
    }
    changed.notify_one();
    worker.join();
  }

  std::shared_ptr<Event::State> enqueue(Ticket after, std::function<void()> work) {
    TicketSource done;
    auto event = std::make_shared<Event::State>(Event::State{done.ticket()});
    {
      const std::lock_guard lock(mutex);
      queue.push_back({std::move(after), std::move(work), std::move(done)});
    }
    changed.notify_one();
    return event;
  }

  std::optional<Item> next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return closing || !queue.empty(); });
    if (queue.empty()) return std::nullopt;
    std::optional<Item> item(std::move(queue.front()));
    queue.pop_front();
    return item;
  }

  void serve() {
    name_this_thread(lane);
    std::exception_ptr error;  // the first; it stays
    while (auto item = next()) {
      if (auto failed = item->after.wait_error(); failed && !error) error = failed;
      if (item->work && !error) {
        item->done.begin();
        try {
          item->work();
        } catch (...) {
          error = std::current_exception();
        }
      }
      item->work = nullptr;
      if (error) {
        item->done.fail(error);
      } else {
        item->done.finish();
      }
    }
  }

  const std::string lane;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> queue;
  bool closing = false;
  std::thread worker;
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
  if (e.state_) state_->enqueue(e.ticket(), nullptr);
}

}  // namespace sluice::gpu
