/// Copies, Adam, sums, norms and memory, each looked at for a moment; calibrate.h says on what. A
/// private header of calibrate.cpp.
///
/// Thread  one; an update beside a layer has another
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/cores.h"
#include "engine/train/calibrate.h"

namespace sluice::train {

/// Looks, and notes what would not hold still.
class Look {
 public:
  Look(const schedule::Setup& setup, Bytes bytes);

  std::size_t elems() const { return elems_; }
  Bytes copied() const { return copied_; }
  /// Of the weights in `touch`: what each array is read and written once.
  Bytes touched() const { return (kArrays - 1) * elems_ * sizeof(float); }
  DType gradient() const { return gradient_; }
  const std::vector<Unsteady>& unsteady() const { return unsteady_; }

  /// Of checksums, by one thread.
  double check();
  CopyTimings copies();
  /// Memory, by all cores, and arithmetic of the optimizer's threads where `computes`. Returns what
  /// updates one chunk each time, the next one; it holds the memory for that, and refers to this
  /// and the optimizer.
  std::function<void()> host(const cpu_adam::Optimizer& optimizer, bool computes, Timings& timings);
  /// Of a layer and what host() returned, which take so long alone, the update all of it.
  Paces paces(const std::function<void()>& layer, double layer_s,
              const std::function<void()>& updates, double update_s);
  ArithmeticTimings device(const cpu_adam::Optimizer& optimizer);

 private:
  static constexpr Bytes kArrays = 4;        // master, m, v, gradient; weights are half of one
  static constexpr Bytes kMostPieces = 256;  // so that a round is about bytes

  class Arrays;
  /// Of an update, and of a sum and the norms of the same gradient, in the types of the run.
  struct Operands {
    cpu_adam::State state;
    std::optional<cpu_adam::SplitState> split;  // in the place of that, where the run's is
    cpu_adam::Values gradient, contribution;
    cpu_adam::Published weights;
    std::span<double> norms;
  };
  /// `arrays`: gradient, master, m, v and weights, elems() floats each.
  Operands operands_in(const std::vector<std::span<std::byte>>& arrays,
                       std::span<std::byte> norms) const;

  template <class Arithmetic>
  void update_chunk(const Arithmetic& does, const Operands& of, std::size_t at) const;
  /// What a sum and norms are of may be no more than caches hold. `clear` has the masters take its
  /// place there: of the three only an update has to do with them, which is of much more.
  template <class Arithmetic, class Clock>
  ArithmeticTimings arithmetic(const char* whose, const Arithmetic& does, const Operands& of,
                               const std::function<void()>& clear, const Clock& clock);

  double seconds(const std::function<void()>& work) const { return seconds_of(work, quota_); }
  double timed(std::string what, const std::function<double()>& once);

  const std::optional<CpuQuota> quota_ = cores().quota;
  const DType weights_, gradient_;
  const bool splits_;
  std::size_t elems_, chunk_ = 0;
  Bytes copied_, piece_;
  std::vector<Unsteady> unsteady_;
};

}  // namespace sluice::train
