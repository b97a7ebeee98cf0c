#include "gpu/device.h"

#include <gtest/gtest.h>

#include "gpu/stream.h"
#include "tests/gpu/cuda/emulated_runtime.h"
#include "tests/support/errors.h"

namespace sluice::gpu {
namespace {

using test::expect_error;

TEST(CudaDevice, WithoutADriver) {
  const emulated::On machine({.driver = 0});
  expect_error(Errc::kDevice, {"no driver", "nvidia-smi", "SLUICE_GPU=host"}, [] { device(); });
  expect_error(Errc::kDevice, {"no driver"}, [] { const Stream stream("s"); });
  expect_error(Errc::kDevice, {"no driver"}, [] { free_memory(); });
}

TEST(CudaDevice, WithADriverThatIsTooOld) {
  const emulated::On machine({.driver = 12080});
  expect_error(Errc::kDevice, {"knows CUDA 12.8,", "with CUDA 13.0:"}, [] { device(); });
}

TEST(CudaDevice, WithoutAGpu) {
  const emulated::On machine({.devices = 0});
  expect_error(Errc::kDevice, {"no GPU", "CUDA 13.0", "CUDA_VISIBLE_DEVICES"}, [] { device(); });
}

TEST(CudaDevice, RefusesACardThatNoKernelIsFor) {
  {
    const emulated::On machine({.major = 7, .minor = 5});
    expect_error(Errc::kDevice, {"Emulated GPU", "sm_75", "sm_80"}, [] { device(); });
  }
  const emulated::On machine({.major = 8, .minor = 0});
  EXPECT_EQ(device().name, "Emulated GPU");
}

TEST(CudaDevice, IsNotHostMemory) {
  EXPECT_FALSE(device().unified);
}

TEST(CudaDevice, SaysWhatOthersLeaveOfIt) {
  const emulated::On machine({.memory = 80_GiB, .of_others = 60_GiB});
  EXPECT_EQ(device().memory, 80_GiB);
  EXPECT_EQ(free_memory(), 20_GiB);
}

}  // namespace
}  // namespace sluice::gpu
