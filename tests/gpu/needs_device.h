/// For tests that a device runs: skipped, with the reason, where there is none.
#pragma once

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "gpu/device.h"

namespace sluice::gpu {

class NeedsDevice : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

}  // namespace sluice::gpu
