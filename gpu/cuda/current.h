/// Where a work launches its kernels.
#pragma once

#include <cuda_runtime_api.h>

namespace sluice::gpu::cuda {

/// The stream whose work the calling thread is in. LibTorch is told of it by who calls LibTorch.
///
/// Throws  kLogic outside of Stream::run
cudaStream_t current_stream();

/// Makes it current on this thread while it lives.
class Current {
 public:
  explicit Current(cudaStream_t stream);
  Current(Current&&) = delete;
  ~Current();

 private:
  cudaStream_t before_;
};

}  // namespace sluice::gpu::cuda
