/// The functions of the model as a run needs them: the seam to LibTorch. engine/compute has them;
/// a test that does without LibTorch brings its own.
///
/// Thread  run(): works of the compute stream; the rest: when none of these runs
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/units.h"
#include "engine/schedule/setup.h"
#include "engine/train/op_bytes.h"
#include "engine/train/timing.h"
#include "gpu/stream.h"

namespace sluice::train {

/// Numerics that are frozen (docs/design.md 4): another value may give other bits.
struct Numerics {
  int threads = 1;              ///< of LibTorch
  std::int64_t loss_chunk = 0;  ///< vocabulary columns of the head at a time
  std::int64_t mlp_chunk = 0;   ///< tokens of a layer's MLP at a time
  bool tf32 = false;            ///< products of fp32 may be of numbers with 10 bits of fraction
};

/// What ops took at most beyond their buffers.
struct WorkspaceUse {
  Bytes main = 0;     ///< by the thread of the op: the same in every repeat
  Bytes side = 0;     ///< by workers, which come in no fixed order: leave twice this
  Bytes spilled = 0;  ///< what fitted neither, and is counted in no tier
};

struct Measured {
  WorkspaceUse workspace;
  std::map<schedule::OpId, double> seconds = {};  ///< of one op of each kind
  std::map<schedule::OpId, Bytes> bytes = {};     ///< that it has to read and to write
  std::vector<Unsteady> unsteady = {};            ///< of their times
};

/// What of it is wanted: times take seconds.
enum class Wanted : std::uint8_t { kWorkspace, kTimesToo };

class Compute {
 public:
  virtual ~Compute() = default;

  /// Each op that a run of this setup may have, on the stream of compute and on scratch memory
  /// outside every tier; for the workspace alone, each is run once. Throws kBudget when one needs
  /// more than the machine has, or of a device's own memory, which others may want, more than
  /// `most` for its workspace.
  virtual Measured measure(gpu::Stream& stream, Bytes most, Wanted wanted) = 0;
  /// The backward of a layer, as measure() ran it, which must have been on this stream: each call
  /// runs it once and returns when it is done. Its memory lives as long as it does; this and the
  /// stream must outlive it. Empty: ops that take nothing of the host. Throws kBudget as measure().
  virtual std::function<void()> example(gpu::Stream& stream) = 0;
  /// From now on ops take what they need from here; its last `side` bytes are for workers. The
  /// memory must outlive this.
  virtual void set_workspace(std::span<std::byte> memory, Bytes side) = 0;
  /// An op whose runner is kModel (engine/schedule/ops.h). Every gradient of its block is written,
  /// padding with zeros. Throws kBudget when the op exceeds the workspace.
  virtual void run(const OpBytes& op) = 0;
  /// Since set_workspace().
  virtual WorkspaceUse peak() const = 0;
};

/// Both must outlive what is made.
using MakeCompute =
    std::function<std::unique_ptr<Compute>(const schedule::Setup& setup, const Numerics& numerics)>;

}  // namespace sluice::train
