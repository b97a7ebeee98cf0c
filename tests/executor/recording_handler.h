/// A handler that writes down what it is given and does what the test says.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/executor/driver.h"

namespace sluice::testing {

class RecordingHandler : public executor::Handler {
 public:
  Ticket start(const executor::OpContext& context) override {
    {
      const std::lock_guard lock(mutex_);
      started_.push_back(context.ref);
      tags_.push_back(context.tag);
    }
    return on_start ? on_start(context) : Ticket{};
  }
  void freed(const prefetch::Freed&) override {
    {
      const std::lock_guard lock(mutex_);
      ++freed_;
    }
    if (on_freed) on_freed();
  }

  std::vector<prefetch::OpRef> started() const {
    const std::lock_guard lock(mutex_);
    return started_;
  }
  std::vector<std::uint64_t> tags() const {
    const std::lock_guard lock(mutex_);
    return tags_;
  }
  std::size_t freed_slots() const {
    const std::lock_guard lock(mutex_);
    return freed_;
  }

  std::function<Ticket(const executor::OpContext&)> on_start;
  std::function<void()> on_freed;

 private:
  mutable std::mutex mutex_;
  std::vector<prefetch::OpRef> started_;
  std::vector<std::uint64_t> tags_;
  std::size_t freed_ = 0;
};

}  // namespace sluice::testing
