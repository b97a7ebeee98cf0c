#include "gpu/device.h"

#include <gtest/gtest.h>

#include "tests/gpu/needs_device.h"

namespace sluice::gpu {
namespace {

using DeviceTest = NeedsDevice;

TEST_F(DeviceTest, SaysWhatItIs) {
  const Device d = device();
  EXPECT_FALSE(d.name.empty());
  EXPECT_GT(d.memory, 64_MiB);
  EXPECT_GT(free_memory(), 0U);
  EXPECT_LE(free_memory(), d.memory);
}

}  // namespace
}  // namespace sluice::gpu
