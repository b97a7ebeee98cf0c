/// What a queue that lives on one thread needs of the kernel: transfers in, answers out.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "nvme/event_fd.h"
#include "nvme/io_queue.h"
#include "nvme/transfer.h"

namespace sluice::nvme {

/// What the kernel said about a piece: bytes, or a negative errno.
struct Answer {
  Piece* piece;
  std::int64_t result;
};

/// Thread  one: it is made, used and dropped there
/// Throws  kEnv when it is made where this kernel or container does not allow it, with what to
///         change; kIo when it stops working
class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  /// Transfers in flight may still touch their memory afterwards.
  virtual ~Ring() = default;

  /// Takes the first `bytes` of what is left of a piece.
  virtual void prepare(Piece& piece, Bytes bytes) = 0;
  /// Hands over what was prepared, and sleeps until there is an answer, the queue is woken, or
  /// `at_most` is over.
  virtual void enter(std::chrono::milliseconds at_most) = 0;
  virtual std::optional<Answer> answer() = 0;

  /// See IoQueue::enrol(); describe() says what the kernel refused of it.
  virtual void enrol(const Enrolment& /*most*/) {}
  /// For people: "io_uring, deferred".
  virtual std::string describe() const = 0;
};

/// The RWF_ flags of a write: through the page cache it waits for the drive, because of an error
/// that came later nobody would know.
int write_flags(const File& file);

/// Makes a ring for so many transfers at a time, that `wake` can wake.
using MakeRing = std::function<std::unique_ptr<Ring>(unsigned transfers, const EventFd& wake)>;

/// The queue on a ring. Throws what making the ring throws.
std::unique_ptr<IoQueue> make_ring_queue(const Options& options, std::shared_ptr<KernelSeam> seam,
                                         const MakeRing& make_ring);

}  // namespace sluice::nvme
