#include "gpu/cuda/answer.h"

#include <fmt/format.h>

#include "engine/base/error.h"

namespace sluice::gpu::cuda {
namespace {

const char* advice(cudaError_t answer) {
  switch (answer) {
    case cudaErrorMemoryAllocation:
      return "; lower tiers.gpu.limit, or end what else uses the device";
    case cudaErrorDevicesUnavailable:
      return "; another process has it for itself (nvidia-smi -q -d COMPUTE)";
    case cudaErrorECCUncorrectable:
      return "; its memory is failing (nvidia-smi -q -d ECC)";
    default:
      return "";
  }
}

}  // namespace

std::string text_of(cudaError_t answer) {
  return fmt::format("{}: {}", cudaGetErrorName(answer), cudaGetErrorString(answer));
}

void check(cudaError_t answer, std::string_view asked) {
  if (holds(answer)) return;
  throw Error(Errc::kDevice, fmt::format("{}: {}{}", asked, text_of(answer), advice(answer)));
}

bool holds(cudaError_t answer) noexcept {
  if (answer == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

}  // namespace sluice::gpu::cuda
