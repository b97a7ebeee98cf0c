#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "gpu/cuda/current.h"
#include "tests/gpu/cuda/emulated_runtime.h"
#include "tests/train/cuda/wrapped_compute.h"
#include "tests/train/hash_compute.h"
#include "tests/train/tested_compute.h"

namespace sluice::train {
namespace {

/// As kernels are launched: they run when the stream comes to them, and the host goes on. Slower
/// than the host, so that one which does not wait where it must is ahead of them. And as LibTorch's
/// libraries do, it takes memory for itself when it is first called.
class LaunchedCompute : public WrappedCompute {
 public:
  using WrappedCompute::WrappedCompute;
  ~LaunchedCompute() override { cudaFree(memory_); }
  LaunchedCompute(const LaunchedCompute&) = delete;
  LaunchedCompute& operator=(const LaunchedCompute&) = delete;

  Measured measure(gpu::Stream& stream, Bytes most) override {
    EXPECT_EQ(cudaMalloc(&memory_, 2_MiB), cudaSuccess);
    return WrappedCompute::measure(stream, most);
  }
  void run(const OpBytes& op) override {
    gpu::emulated::launch(gpu::cuda::current_stream(), [this, op] {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      WrappedCompute::run(op);
    });
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace

MakeCompute tested_compute() {
  return [](const schedule::Setup& setup, const Numerics& numerics) {
    return std::make_unique<LaunchedCompute>(hash_compute()(setup, numerics));
  };
}

}  // namespace sluice::train
