/// How long each transfer of a block takes, and how much was moved: noted between a queue and the
/// kernel, so that the queue itself is the one of a run.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/bench/point.h"
#include "nvme/io_queue.h"

namespace sluice::bench {

/// Thread  any
class TransferClock final : public nvme::KernelSeam {
 public:
  /// All memory that will be read into and written from.
  TransferClock(std::span<std::byte> read, std::span<std::byte> written);

  Bytes ask(const nvme::Request& piece) override;
  std::int64_t answer(const nvme::Request& piece, std::int64_t result) override;

  /// Since it was made.
  Bytes moved(nvme::Op op) const { return of(op).moved; }
  /// Forgets the durations so far; those of transfers that are under way do not count either.
  void begin();
  /// No more durations are taken.
  void end() { end_ = now_ns(); }
  /// Whether there are durations.
  bool timed(nvme::Op op) const;
  Latency latency(nvme::Op op) const;

 private:
  struct Direction {
    std::span<std::byte> memory;
    std::vector<Nanos> asked;  // by place in the memory, in steps of kAlignment
    std::atomic<Bytes> moved{0};
    mutable std::mutex mutex;
    std::vector<Nanos> durations;
  };
  Direction& of(nvme::Op op) { return directions_[static_cast<std::size_t>(op)]; }
  const Direction& of(nvme::Op op) const { return directions_[static_cast<std::size_t>(op)]; }
  Nanos& asked_of(const nvme::Request& piece);

  std::array<Direction, 2> directions_;  // by Op
  std::atomic<Nanos> begin_{0};
  std::atomic<Nanos> end_{std::numeric_limits<Nanos>::max()};
};

}  // namespace sluice::bench
