/// Spans of time on named tracks, kept in memory: what ran where, from when to when.
///
/// Thread  add() from any thread; each span is one lock and one push
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/clock.h"

namespace sluice {

struct Span {
  std::uint32_t track = 0;  ///< a lane
  std::uint32_t name = 0;   ///< an op kind
  std::uint64_t where = 0;  ///< whatever the owner of the names packs in here
  std::uint64_t cause = 0;  ///< what it waited for last, packed likewise
  Nanos ready = 0;          ///< when it could have begun
  Nanos begin = 0;
  Nanos end = 0;
};

/// A ring of the last `capacity` spans; its memory is taken at once.
class Trace {
 public:
  explicit Trace(std::size_t capacity) : ring_(capacity) {}

  void add(const Span& span);
  /// The spans in order of their ends, oldest first.
  std::vector<Span> spans() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Span> ring_;
  std::size_t added_ = 0;  // ever
};

}  // namespace sluice
