#include <c10/cuda/CUDAFunctions.h>

#include <memory>

#include "engine/compute/model_ops.h"
#include "tests/train/tested_compute.h"

namespace sluice::train {
namespace {

/// LibTorch refuses to let the host wait inside an op, once what is kept for good has been made.
class Launching : public compute::ModelOps {
 public:
  using ModelOps::ModelOps;

  void set_workspace(std::span<std::byte> memory, Bytes side) override {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
    ModelOps::set_workspace(memory, side);
  }
};

}  // namespace

MakeCompute tested_compute() {
  return [](const schedule::Setup& setup, const Numerics& numerics) {
    return std::make_unique<Launching>(setup, numerics);
  };
}

}  // namespace sluice::train
