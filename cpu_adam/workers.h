/// The threads of an optimizer, which cut spans at grains.
///
/// Thread  for_grains() from several threads at once; who works is arena.h's
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "cpu_adam/arena.h"

namespace sluice::cpu_adam {

/// Elements [begin, end) of the spans at hand.
using RangeWork = std::function<void(std::size_t begin, std::size_t end)>;

class Workers {
 public:
  explicit Workers(unsigned threads);  // the caller of for_grains() counts as one

  unsigned threads() const { return threads_; }

  /// Calls the work for disjoint ranges that together are [0, count) and begin on grains, and
  /// returns when all are done. The work runs in the default floating-point environment, whatever
  /// its caller has set (rounding, subnormals flushed to zero).
  void for_grains(std::size_t count, const RangeWork& work) const;

 private:
  unsigned threads_;
  std::unique_ptr<const Arena> arena_;  // null with one thread
};

}  // namespace sluice::cpu_adam
