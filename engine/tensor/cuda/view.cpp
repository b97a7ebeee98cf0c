#include "engine/tensor/view.h"

#include "gpu/cuda/answer.h"
#include "gpu/cuda/current.h"

namespace sluice::tensor {

at::Device device() {
  return {at::kCUDA, 0};
}

// Outside ops too, where LibTorch's current stream is another.
void clear(std::span<std::byte> bytes) {
  gpu::cuda::check(cudaMemsetAsync(bytes.data(), 0, bytes.size(), gpu::cuda::current_stream()),
                   "clearing a buffer");
}

}  // namespace sluice::tensor
