/// What a driver reports: a span of each op, and what it says of each program that has run.
///
/// Thread  one at a time; the overlapped driver holds its lock around it
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/executor/driver.h"

namespace sluice::executor {

/// Adds an op's span, if anyone wants it. Before the op is completed.
void add_span(Trace* trace, const prefetch::Scoreboard& board, prefetch::OpRef op, Nanos begin,
              Nanos end);

/// The most slots of each pool that were in use at once.
std::vector<std::uint32_t> peak_slots(const prefetch::Scoreboard& board);

/// The programs of the stream that have not been reported yet.
class Records {
 public:
  /// The next program of the stream (instances count from 0).
  void append(std::uint64_t tag) { kept_.push_back({tag, std::nullopt}); }
  std::uint64_t tag(std::uint32_t instance) const { return kept_[instance - first_].tag; }
  /// The tag is filled in.
  void finish(Finished finished);
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
