#include "gpu/device.h"

#include <gtest/gtest.h>

namespace sluice::gpu {
namespace {

TEST(Device, SaysWhatItIs) {
  const Device d = device();
  EXPECT_FALSE(d.name.empty());
  EXPECT_GT(d.memory, 64_MiB);
}

}  // namespace
}  // namespace sluice::gpu
