/// The model's functions on LibTorch: what a run's compute lane calls, and what that costs.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/schedule/setup.h"
#include "engine/tensor/workspace.h"
#include "engine/train/compute.h"

namespace sluice::compute {

/// The only caller of LibTorch in a run.
///
/// Thread  run(): works of the stream that measured, since LibTorch keeps its settings per thread
class ModelOps : public train::Compute {
 public:
  /// Both must outlive this.
  ModelOps(const schedule::Setup& setup, const train::Numerics& numerics);

  train::Measured measure(gpu::Stream& stream, Bytes most, train::Wanted wanted) override;
  std::function<void()> example(gpu::Stream& stream) override;
  void set_workspace(std::span<std::byte> memory, Bytes side) override;
  void run(const train::OpBytes& op) override;
  train::WorkspaceUse peak() const override;

 private:
  const schedule::Setup& setup_;
  const train::Numerics& numerics_;
  std::optional<tensor::Workspace> workspace_;
};

/// One op, in a workspace.
void run_in(tensor::Workspace& workspace, const schedule::Setup& setup,
            const train::Numerics& numerics, const train::OpBytes& op);

/// For train::Job.
train::MakeCompute on_libtorch();

}  // namespace sluice::compute
