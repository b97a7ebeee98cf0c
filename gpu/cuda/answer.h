/// What the CUDA runtime answers, as errors.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace sluice::gpu::cuda {

/// "cudaErrorLaunchFailure: unspecified launch failure".
std::string text_of(cudaError_t answer);

/// Throws  kDevice unless it is cudaSuccess; `asked` says of whom, or for what. The runtime forgets
///         the error then, as far as it can be forgotten, so that nobody takes it for a later one
void check(cudaError_t answer, std::string_view asked);

/// For those who go on without: whether it is cudaSuccess. The runtime forgets the error.
bool holds(cudaError_t answer) noexcept;

}  // namespace sluice::gpu::cuda
