/// The thread that finishes a stream's tickets: it sleeps until the device has come to their
/// points.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/ticket.h"
#include "gpu/cuda/point.h"

namespace sluice::gpu::cuda {

/// Errors  the first one stays, whether it came with an item or from the device: the tickets from
///         there on carry it
/// Thread  any; items are finished in the order in which they were pushed
class Completer {
 public:
  struct Item {
    std::vector<Ticket> after;  ///< of other streams, which this one waits for
    Point began;                ///< null when nothing was started
    Point ended;                ///< null when the device refused one
    std::exception_ptr error;
    TicketSource done;
  };

  /// Throws  kEnv when the system has no thread for it
  Completer(std::string lane, cudaStream_t stream);
  Completer(Completer&&) = delete;
  /// All that was pushed is finished.
  ~Completer();

  void push(Item item);

 private:
  std::optional<Item> next();
  void serve();
  void finish(Item item);
  std::exception_ptr wait(const Item& item) const noexcept;

  const std::string lane_;
  const cudaStream_t stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool closing_ = false;
  std::exception_ptr error_;  // the thread's, as what follows
  DeviceClock clock_;
  std::thread thread_;
};

}  // namespace sluice::gpu::cuda
