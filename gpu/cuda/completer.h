/// The thread that finishes a stream's tickets: it sleeps until the device has come to their
/// points.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/ticket.h"
#include "gpu/cuda/point.h"
#include "gpu/worker.h"

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

  void push(Item item) { worker_.push(std::move(item)); }

 private:
  void finish(Item item);
  std::exception_ptr wait(const Item& item) const noexcept;

  const std::string lane_;
  const cudaStream_t stream_;
  std::exception_ptr error_;  // the worker's, as what follows
  DeviceClock clock_;
  backend::Worker<Item> worker_;  // goes first, when all that was pushed is finished
};

}  // namespace sluice::gpu::cuda
