/// Where the time of a lane went: with an op running, or idle, and why.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/base/clock.h"
#include "prefetch/scoreboard.h"

namespace sluice::executor {

/// Why a lane was idle, as an index. A stretch is put down to what the op that ended it waited for
/// last.
class Reasons {
 public:
  Reasons(std::size_t lanes, std::size_t pools) : lanes_(lanes), pools_(pools) {}

  static constexpr std::size_t kStream = 0;  ///< for its program to be appended
  static constexpr std::size_t kStart = 1;   ///< it could start, and had not begun
  static constexpr std::size_t kLater = 2;   ///< for an op that had not begun at the last look
  std::size_t lane(std::size_t lane) const { return 3 + lane; }
  std::size_t pool(std::size_t pool) const { return 3 + lanes_ + pool; }
  std::size_t size() const { return 3 + lanes_ + pools_; }
  std::size_t of(prefetch::Cause cause) const;

 private:
  std::size_t lanes_, pools_;
};

/// Since the driver began.
struct LaneTime {
  Nanos busy = 0;           ///< with at least one op running
  std::vector<Nanos> idle;  ///< by reason; with `busy` exactly the time that has passed
  /// By reason, of the stretches that an op has ended, each wholly under that op. `idle` cuts them
  /// at every look and has the part before under kLater.
  std::vector<Nanos> ended;
};

/// One lane's account.
///
/// Thread  one at a time; the overlapped driver holds its lock around it
class LaneAccount {
 public:
  LaneAccount(Nanos now, std::size_t reasons) : since_(now), idle_from_(now) {
    time_.idle.resize(reasons);
    time_.ended.resize(reasons);
  }

  /// An op began; it could have since `ready`, and waited until then for `reason`.
  void begin(Nanos now, Nanos ready, std::size_t reason);
  void end(Nanos now);
  const LaneTime& look(Nanos now);

 private:
  LaneTime time_;
  std::size_t running_ = 0;
  Nanos since_;      // not accounted from here on
  Nanos idle_from_;  // when the last op ended
};

}  // namespace sluice::executor
