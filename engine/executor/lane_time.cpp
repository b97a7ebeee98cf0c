#include "engine/executor/lane_time.h"

#include <algorithm>

namespace sluice::executor {

using prefetch::Cause;

std::size_t Reasons::of(Cause cause) const {
  switch (cause.kind) {
    case Cause::Kind::kLane:
      return lane(cause.which);
    case Cause::Kind::kMemory:
      return pool(cause.which);
    case Cause::Kind::kStream:
      break;
  }
  return kStream;
}

void LaneAccount::begin(Nanos now, Nanos ready, std::size_t reason) {
  if (running_++ > 0) return;
  now = std::max(now, since_);
  const auto split = [&](std::vector<Nanos>& idle, Nanos from) {
    const Nanos could = std::clamp(ready, from, now);
    idle[reason] += could - from;
    idle[Reasons::kStart] += now - could;
  };
  split(time_.idle, since_);
  split(time_.ended, idle_from_);
  since_ = now;
}

void LaneAccount::end(Nanos now) {
  if (--running_ > 0) return;
  now = std::max(now, since_);
  time_.busy += now - since_;
  since_ = idle_from_ = now;
}

const LaneTime& LaneAccount::look(Nanos now) {
  now = std::max(now, since_);
  (running_ > 0 ? time_.busy : time_.idle[Reasons::kLater]) += now - since_;
  since_ = now;
  return time_;
}

}  // namespace sluice::executor
