/// The compute lane's ops: LibTorch on the bytes of the program. The only caller of LibTorch in a
/// run.
///
/// Thread  the compute stream's
#pragma once

#include <cstdint>

#include "engine/schedule/setup.h"
#include "engine/tensor/workspace.h"
#include "engine/train/op_bytes.h"

namespace sluice::train {

/// Part of a run's numbers (docs/design.md 4): another value may give other bits.
struct Numbers {
  int threads = 1;              ///< of LibTorch
  std::int64_t loss_chunk = 0;  ///< vocabulary columns of the head at a time
};

class ComputeOps {
 public:
  /// All three must outlive this.
  ComputeOps(const schedule::Setup& setup, const Numbers& numbers, tensor::Workspace& workspace);

  /// Is this op one of a block's forward, backward or loss?
  static bool owns(schedule::OpId id);
  void run(const OpBytes& op);

 private:
  const schedule::Setup& setup_;
  const Numbers& numbers_;
  tensor::Workspace& workspace_;
};

/// Bytes of workspace that the ops of this run need: each is run once, on scratch memory, in an
/// arena without a limit. `side` is what OpenMP workers took at most.
///
/// Thread  the compute stream's, with its number of threads set
tensor::Usage measure_workspace(const schedule::Setup& setup, const Numbers& numbers);

}  // namespace sluice::train
