/// Sums of gradients, their norms, and Adam: on the operands of an op, by whoever works where they
/// lie.
///
/// Thread  any, several at once on different ops
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/schedule/gradient_route.h"
#include "engine/schedule/setup.h"
#include "engine/train/op_bytes.h"
#include "engine/train/options.h"
#include "gpu/arithmetic.h"

namespace sluice::train {

/// Bytes as the values of this type.
cpu_adam::Values as_gradient(OpBytes::Bytes bytes, DType dtype);
cpu_adam::Published as_weights(OpBytes::Bytes bytes, DType dtype);
/// Elements [first, first + elems).
cpu_adam::Gradient part(const cpu_adam::Gradient& all, std::uint64_t first, std::uint64_t elems);
cpu_adam::Published part(const cpu_adam::Published& all, std::uint64_t first, std::uint64_t elems);
cpu_adam::State part(const cpu_adam::State& all, std::uint64_t first, std::uint64_t elems);
cpu_adam::SplitState part(const cpu_adam::SplitState& all, std::uint64_t first,
                          std::uint64_t elems);

/// Master, m and v of a chunk, which lie one after the other.
cpu_adam::State state_of(const OpBytes& op);
/// A chunk's state without the masters' upper halves: their lower ones, v, m, one after the other.
/// m may be missing, in part or as a whole.
cpu_adam::SplitState split_state(OpBytes::Bytes state, std::span<const Bf16> weights,
                                 std::size_t elems);
/// New weights: elements [first, first + elems) of the chunk.
cpu_adam::Published fresh_of(const OpBytes& op, DType dtype, std::uint64_t first,
                             std::uint64_t elems);

class ArithmeticOps {
 public:
  /// All must outlive this. `routes` by segment.
  ArithmeticOps(const schedule::Setup& setup, const std::vector<schedule::GradientRoute>& routes,
                const OptimizerOptions& options)
      : setup_(setup), routes_(routes), options_(options) {}

  /// An op whose runner is kArithmetic (engine/schedule/ops.h), on host memory.
  void run(const OpBytes& op, const cpu_adam::Optimizer& host) const;
  /// The same on the device's, inside a work of its stream; no state there is split.
  void run(const OpBytes& op, const gpu::Arithmetic& device) const;

 private:
  template <class Arithmetic>
  void run_by(const Arithmetic& arithmetic, const OpBytes& op) const;
  template <class Arithmetic>
  void adam(const Arithmetic& arithmetic, const OpBytes& op) const;
  void adam_split(const cpu_adam::Optimizer& host, const OpBytes& op) const;
  /// Calls update(hyper, first, elems) for the stretches of the op's chunk that are treated alike.
  template <class Update>
  void for_runs(const OpBytes& op, const Update& update) const;
  /// The operand, of one term or two, in the dtype of its segment's gradient.
  cpu_adam::Gradient gradient(const OpBytes& op) const;

  const schedule::Setup& setup_;
  const std::vector<schedule::GradientRoute>& routes_;
  const OptimizerOptions& options_;
};

}  // namespace sluice::train
