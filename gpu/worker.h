/// The thread behind a stream, named after its lane: it serves what is pushed, one by one and in
/// order. For this room only.
///
/// Thread  push(): any; the destructor waits until all that was pushed has been served
#pragma once

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/threads.h"

namespace sluice::gpu::backend {

template <class Item>
class Worker {
 public:
  /// Throws  kEnv when the system has no thread for it
  Worker(std::string lane, std::function<void(Item)> serve)
      : lane_(std::move(lane)), serve_(std::move(serve)) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& e) {
      throw Error(Errc::kEnv, fmt::format("no thread for the stream {}: {}; raise `ulimit -u`",
                                          lane_, e.what()));
    }
  }
  Worker(Worker&&) = delete;
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void push(Item item) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(item));
    }
    changed_.notify_one();
  }

 private:
  std::optional<Item> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return std::nullopt;
    std::optional<Item> item(std::move(queue_.front()));
    queue_.pop_front();
    return item;
  }

  void run() {
    name_this_thread(lane_);
    while (auto item = next()) serve_(std::move(*item));
  }

  const std::string lane_;
  const std::function<void(Item)> serve_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace sluice::gpu::backend
