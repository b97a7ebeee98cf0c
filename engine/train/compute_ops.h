/// The compute lane's ops: LibTorch on the bytes of the program. The only caller of LibTorch in a
/// run.
///
/// Thread  the compute stream's
#pragma once

#include <cstdint>
#include <map>

#include "engine/schedule/setup.h"
#include "engine/tensor/workspace.h"
#include "engine/train/op_bytes.h"

namespace sluice::train {

/// Part of a run's numbers (docs/design.md 4): another value may give other bits.
struct Numerics {
  int threads = 1;              ///< of LibTorch
  std::int64_t loss_chunk = 0;  ///< vocabulary columns of the head at a time
};

class ComputeOps {
 public:
  /// All three must outlive this.
  ComputeOps(const schedule::Setup& setup, const Numerics& numerics, tensor::Workspace& workspace);

  /// Is this op one of a block's forward, backward or loss?
  static bool owns(schedule::OpId id);
  void run(const OpBytes& op);

 private:
  const schedule::Setup& setup_;
  const Numerics& numerics_;
  tensor::Workspace& workspace_;
};

/// What the ops of this run need.
struct Measured {
  tensor::Usage workspace;                   ///< `side` is what OpenMP workers took at most
  std::map<schedule::OpId, double> seconds;  ///< of one op of each kind
};

/// Each op is run on scratch memory, with all that the machine has left as its workspace; a short
/// one three times, because a first run pays for more than itself.
///
/// Thread  the compute stream's, with its number of threads set
/// Throws  kBudget when an op needs more than there is
Measured measure_ops(const schedule::Setup& setup, const Numerics& numerics);

}  // namespace sluice::train
