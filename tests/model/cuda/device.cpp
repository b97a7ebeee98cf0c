#include <c10/cuda/CUDAStream.h>

#include "gpu/cuda/current.h"
#include "tests/model/harness.h"

namespace sluice::model {

// From the first tensor to the end of the process the test is in the work of one stream.
at::Device device() {
  static const gpu::cuda::Current current = [] {
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, /*device=*/0);
    c10::cuda::setCurrentCUDAStream(stream);
    return gpu::cuda::Current(stream.stream());
  }();
  return {at::kCUDA, 0};
}

}  // namespace sluice::model
