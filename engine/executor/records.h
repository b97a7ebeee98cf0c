/// What a driver reports of its programs: which are finished, when, and how busy the lanes were.
///
/// Thread  one at a time; the overlapped driver holds its lock around both classes
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/executor/driver.h"

namespace sluice::executor {

/// Time with at least one op running. On a stream an op runs from the moment it is enqueued, so
/// what counts for it begins where the op before it ended.
class BusyTime {
 public:
  void begin(Nanos now) {
    if (running_++ == 0) since_ = now;
  }
  void end(Nanos now) {
    if (--running_ == 0) total_ += now - since_;
  }
  Nanos total(Nanos now) const { return total_ + (running_ > 0 ? now - since_ : 0); }

 private:
  std::size_t running_ = 0;
  Nanos since_ = 0;
  Nanos total_ = 0;
};

/// Adds an op's span, if anyone wants it.
void add_span(Trace* trace, const prefetch::Scoreboard& board, prefetch::OpRef op, Nanos begin,
              Nanos end);

/// The programs of the stream that have not been reported yet.
class Records {
 public:
  /// The next program of the stream (instances count from 0).
  void append(std::uint64_t tag) { kept_.push_back({tag, std::nullopt}); }
  std::uint64_t tag(std::uint32_t instance) const { return kept_[instance - first_].tag; }
  void finish(std::uint32_t instance, Nanos end, std::vector<Nanos> busy);
  /// The finished ones up to the first that is not, in stream order; each is reported once.
  std::vector<Finished> take();

 private:
  struct Record {
    std::uint64_t tag;
    std::optional<Finished> finished;
  };
  std::uint32_t first_ = 0;  // instance of the first one kept
  std::deque<Record> kept_;
};

}  // namespace sluice::executor
