#include "engine/base/trace.h"

namespace sluice {

void Trace::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() == capacity_) spans_.pop_front();
  spans_.push_back(span);
}

std::vector<Span> Trace::spans() const {
  const std::lock_guard lock(mutex_);
  return {spans_.begin(), spans_.end()};
}

}  // namespace sluice
