#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "gpu/cuda/current.h"
#include "tests/gpu/cuda/emulated_runtime.h"
#include "tests/train/cuda/wrapped_compute.h"
#include "tests/train/hash_compute.h"
#include "tests/train/tested_compute.h"

namespace sluice::train {
namespace {

/// As kernels are launched: they run when the stream comes to them, and the host goes on. Slower
/// than the host, so that one which does not wait where it must is ahead of them.
class LaunchedCompute : public KeepingCompute {
 public:
  explicit LaunchedCompute(std::unique_ptr<Compute> inner)
      : KeepingCompute(std::move(inner), 2_MiB) {}
  void run(const OpBytes& op) override {
    gpu::emulated::launch(gpu::cuda::current_stream(), [this, op] {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      KeepingCompute::run(op);
    });
  }
};

}  // namespace

MakeCompute tested_compute() {
  return [](const schedule::Setup& setup, const Numerics& numerics) {
    return std::make_unique<LaunchedCompute>(hash_compute()(setup, numerics));
  };
}

}  // namespace sluice::train
