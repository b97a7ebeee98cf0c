#include "engine/tensor/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace sluice::tensor {
namespace {

TEST(Process, ComputeThreadsAreWhatLibTorchUses) {
  set_compute_threads(2);
  EXPECT_EQ(at::get_num_threads(), 2);
  set_compute_threads(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_THROW(set_compute_threads(0), Error);
}

TEST(Process, DeterministicModeDoesNotFillFreshTensors) {
  set_deterministic();
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
}

}  // namespace
}  // namespace sluice::tensor
