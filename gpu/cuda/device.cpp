#include "gpu/device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "gpu/cuda/answer.h"

namespace sluice::gpu {
namespace {

constexpr int kOldest = 80;  // sm_80; cmake/cuda.cmake compiles kernels for it and later ones

/// 13000 is 13.0.
std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

void check_driver() {
  int driver = 0;
  cuda::holds(cudaDriverGetVersion(&driver));
  SLUICE_CHECK(driver != 0, kDevice,
               "this sluice computes on an NVIDIA GPU (SLUICE_GPU=cuda), and there is no driver: "
               "install it until `nvidia-smi` lists the GPU, or build with SLUICE_GPU=host");
  int devices = 0;
  const cudaError_t answer = cudaGetDeviceCount(&devices);
  SLUICE_CHECK(answer != cudaErrorInsufficientDriver, kDevice,
               fmt::format("the driver knows CUDA {}, and this sluice is built with CUDA {}: "
                           "install a driver for that (`nvidia-smi` says which is there)",
                           version(driver), version(CUDART_VERSION)));
  SLUICE_CHECK(answer != cudaErrorNoDevice && (answer != cudaSuccess || devices > 0), kDevice,
               fmt::format("no GPU: the driver (CUDA {}) shows none; look at `nvidia-smi` and "
                           "CUDA_VISIBLE_DEVICES, or build with SLUICE_GPU=host",
                           version(driver)));
  cuda::check(answer, "asked the driver for its GPUs");
}

/// Data sheets, without sparsity; the first whose name is part of the device's.
double peak_flops(std::string_view name) {
  struct Sheet {
    std::string_view name;
    double tflops;
  };
  constexpr std::array kSheets = {
      Sheet{"B200", 2250},    Sheet{"H200 NVL", 835}, Sheet{"H200", 989.5}, Sheet{"H100 PCIe", 756},
      Sheet{"H100 NVL", 835}, Sheet{"H100", 989.5},   Sheet{"A100", 312},   Sheet{"L40S", 362}};
  const auto* const found = std::ranges::find_if(
      kSheets, [&](const Sheet& sheet) { return name.find(sheet.name) != name.npos; });
  return found == kSheets.end() ? 0 : found->tflops * 1e12;
}

}  // namespace

Device device() {
  check_driver();
  cudaDeviceProp found{};
  cuda::check(cudaGetDeviceProperties(&found, 0), "asked what the GPU is");
  SLUICE_CHECK(found.major * 10 + found.minor >= kOldest, kDevice,
               fmt::format("{} is sm_{}{}, and the kernels are for sm_{} and later: use a newer "
                           "GPU (CUDA_VISIBLE_DEVICES chooses), or build with SLUICE_GPU=host",
                           found.name, found.major, found.minor, kOldest));
  // Never unified: the host reaches nothing of cudaMalloc, whatever the memory is made of.
  return {.name = found.name,
          .memory = found.totalGlobalMem,
          .unified = false,
          .peak_flops = peak_flops(found.name),
          .backend = Backend::kCuda};
}

Bytes free_memory() {
  check_driver();
  std::size_t free = 0;
  std::size_t all = 0;
  cuda::check(cudaMemGetInfo(&free, &all), "asked what the GPU has free");
  return free;
}

}  // namespace sluice::gpu
