#include "engine/base/trace.h"

#include <algorithm>

namespace sluice {

void Trace::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  if (ring_.empty()) return;
  ring_[added_++ % ring_.size()] = span;
}

std::vector<Span> Trace::spans() const {
  const std::lock_guard lock(mutex_);
  const std::size_t kept = std::min(added_, ring_.size());
  std::vector<Span> spans;
  spans.reserve(kept);
  for (std::size_t i = added_ - kept; i < added_; ++i) spans.push_back(ring_[i % ring_.size()]);
  return spans;
}

}  // namespace sluice
