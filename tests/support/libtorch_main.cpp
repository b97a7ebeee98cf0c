// main() of the tests that use LibTorch: in the environment that the program gives itself.
#include <gtest/gtest.h>

#include "engine/tensor/process.h"

int main(int argc, char** argv) {
  sluice::tensor::require_process_environment();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
