/// A thread that runs jobs in order: what a stream is to a fifo lane, or a device to a host lane.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/ticket.h"

namespace sluice::testing {

class JobThread {
 public:
  enum class AfterFailure { kGoOn, kSkip };  ///< a stream runs nothing after a job that failed

  explicit JobThread(AfterFailure after) : after_(after), thread_([this] { loop(); }) {}
  ~JobThread() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
  }

  Ticket run(std::function<void()> job) {
    TicketSource source;
    Ticket ticket = source.ticket();
    {
      const std::lock_guard lock(mutex_);
      jobs_.emplace_back(std::move(job), std::move(source));
    }
    changed_.notify_all();
    return ticket;
  }

 private:
  void loop() {
    std::exception_ptr failed;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      auto [job, source] = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      std::exception_ptr error = failed;
      try {
        source.begin();
        if (!error) job();
      } catch (...) {
        error = std::current_exception();
      }
      if (after_ == AfterFailure::kSkip) failed = error;
      source.fail(error);
      lock.lock();
    }
  }

  const AfterFailure after_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::function<void()>, TicketSource>> jobs_;
  bool closing_ = false;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace sluice::testing
