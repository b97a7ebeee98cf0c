/// Offsets into one range of memory: best fit among the gaps, fresh memory at the end only when no
/// gap fits. It never looks at the capacity to choose a place, so a sequence of requests gets the
/// same offsets in every arena that is large enough for it.
///
/// Units   bytes; every offset and size is a multiple of kStep
/// Owns    no memory, only the book-keeping
/// Thread  one at a time
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <optional>

#include "engine/base/units.h"

namespace sluice::tensor {

class Arena {
 public:
  static constexpr Bytes kStep = 64;  ///< a cache line, and what LibTorch aligns to

  explicit Arena(Bytes capacity) : capacity_(round_down(capacity, kStep)) {}

  enum class Fit {
    kBest,  ///< the smallest gap that is large enough
    kEnd    ///< behind all that is taken, whatever gaps there are
  };

  /// The offset of `n` bytes, or nothing when neither a gap nor the end has room. n > 0.
  std::optional<Bytes> take(Bytes n, Fit fit = Fit::kBest);
  /// Throws kLogic when nothing that begins at `offset` is taken.
  void give_back(Bytes offset);

  Bytes capacity() const { return capacity_; }
  /// Everything not taken, in however many pieces.
  Bytes free() const { return capacity_ - used_; }
  std::size_t pieces() const { return taken_.size(); }
  /// The end of the highest piece that was ever taken: the smallest capacity that would have done.
  /// May be read while another thread takes.
  Bytes peak() const { return peak_; }

 private:
  const Bytes capacity_;
  Bytes end_ = 0;  // all above is untouched
  Bytes used_ = 0;
  std::atomic<Bytes> peak_ = 0;
  std::map<Bytes, Bytes> taken_;  // offset -> size
  std::map<Bytes, Bytes> gaps_;   // offset -> size, all below end_, never two side by side
};

}  // namespace sluice::tensor
