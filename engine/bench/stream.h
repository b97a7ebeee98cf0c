/// Requests of one direction, one after the other over a line, several at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <span>

#include "engine/base/ticket.h"
#include "engine/bench/pattern.h"
#include "engine/bench/target.h"

namespace sluice::bench {

struct StreamOptions {
  nvme::Op op = nvme::Op::kRead;
  Bytes begin = 0, bytes = 0;    ///< the part of the line; it goes round in it
  Bytes from = 0;                ///< where in that part it starts
  Bytes request = 0, block = 0;  ///< `from` and `bytes` are multiples of `request`
  Bytes most = std::numeric_limits<Bytes>::max();  ///< no more is asked for
  /// The first requests are of different lengths, so that they do not all end at once, which would
  /// leave the drive idle for a moment, again and again.
  bool staggered = true;
};

/// Thread  run() on one; asked() from any; check() when it is over
class Stream {
 public:
  using Look = std::function<void(Bytes offset, std::span<const std::byte> memory)>;

  /// `memory` holds the requests that are in flight, and there is room for one more in the part of
  /// the line. That of a writing stream is filled (Pattern::fill).
  Stream(Target& target, Pattern& pattern, std::span<std::byte> memory,
         const StreamOptions& options);

  /// Until `over` is not 0, or until nothing more is to be asked for; returns when all of it is
  /// done. `look` sees what each request brought. Throws the error of the first request that
  /// failed.
  void run(const std::atomic<int>& over, const Look& look = {});
  Bytes asked() const { return asked_; }
  bool exhausted() const { return asked_ >= options_.most; }
  /// Compares what the last requests read: how many bytes that was. Throws  kIo where it is not
  /// what was written
  Bytes check() const;

 private:
  struct Sent {
    Ticket ticket;
    Bytes offset;
    std::span<std::byte> memory;
  };
  void send();
  void take(const Look& look);
  Bytes next_length() const;

  Target& target_;
  Pattern& pattern_;
  const std::span<std::byte> memory_;
  const StreamOptions options_;
  const std::size_t at_a_time_;
  std::size_t sent_ = 0;
  Bytes at_;  // in the part of the line
  std::atomic<Bytes> asked_{0};
  std::deque<Sent> in_flight_;
  std::deque<Sent> last_;  // what the memory holds
};

/// Throws  kIo, with the name of the target and the offset, when `memory` is not what was written
void require_same(const Target& target, const Pattern& pattern, Bytes offset,
                  std::span<const std::byte> memory);

}  // namespace sluice::bench
