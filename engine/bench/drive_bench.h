/// Measures points on a target whose every byte is known, and verifies what it reads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/bench/pattern.h"
#include "engine/bench/point.h"
#include "engine/bench/target.h"
#include "nvme/aligned.h"

namespace sluice::bench {

/// How long a point is measured: the first fifth does not count.
struct Box {
  double seconds = 1;
  Bytes most_written = 0;  ///< it ends sooner where so much was written
};

/// What came of writing for long.
struct Steady {
  std::vector<double> rates;  ///< of each second, bytes per second
  bool flat = false;          ///< the last of them are alike (see is_flat)
};

/// Thread  one
/// Throws  kIo for a transfer that failed, and where something else is read than was written, with
///         file and offset; kEnv as nvme::make_queue
class DriveBench {
 public:
  /// `request`: bytes of a request, a multiple of every block. A signal in `stop` ends what is
  /// under way.
  DriveBench(std::unique_ptr<Target> target, Bytes request, std::uint64_t seed,
             const std::atomic<int>& stop);
  ~DriveBench();

  /// Writes everything once, as a point would: bytes per second. Before anything else. It and
  /// verify() leave off when they are stopped.
  double fill(const Point& how);
  /// None when it was stopped.
  std::optional<Measured> measure(const Point& point, const Box& box);
  /// Writes until the rate is flat, or `most` is written; `said` gets each second's rate.
  Steady write_until_flat(const Point& point, Bytes most, const std::function<void(double)>& said);
  /// Reads everything and compares it.
  Bytes verify(const Point& how);

  Bytes written() const { return written_; }
  const Target& target() const { return *target_; }

 private:
  class Session;
  std::span<std::byte> memory(nvme::Op op, const Point& point);

  const std::unique_ptr<Target> target_;
  const Bytes request_;
  Pattern pattern_;
  const std::atomic<int>& stop_;
  struct Memory {
    nvme::AlignedBytes bytes;
    Bytes size = 0;
  };
  std::array<Memory, 2> memory_;     // by Op
  std::array<Bytes, 2> next_{0, 0};  // by Op: where the last point came to
  Bytes written_ = 0;
};

}  // namespace sluice::bench
