/// oneTBB, and nothing else: ranges of numbers handed to threads.
///
/// Thread  run() from several threads at once; a caller works too, unless as many as there are
///         threads do already: then it waits
#pragma once

#include <cstddef>
#include <memory>

namespace sluice::cpu_adam {

/// One call's work, cut into ranges that run on any threads in any order.
class RangeJob {
 public:
  virtual void run(std::size_t first, std::size_t last) = 0;

 protected:
  ~RangeJob() = default;
};

class Arena {
 public:
  explicit Arena(unsigned threads);  // the caller of run() counts as one
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Covers [0, count) with disjoint ranges, and returns when all are done. One is cut, in halves,
  /// where it is longer than `at_least`.
  void run(RangeJob& job, std::size_t count, std::size_t at_least) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::cpu_adam
