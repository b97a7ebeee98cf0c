#include "engine/tensor/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <fstream>
#include <string>

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

TEST(Process, ABusyMachineDoesNotTakeComputeThreadsAway) {
  omp_set_dynamic(1);
  set_compute_threads(2);
  EXPECT_EQ(omp_get_dynamic(), 0);
  set_compute_threads(1);
}

TEST(Process, IsCalledWhatItWasStartedAs) {
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  EXPECT_EQ(name, "tensor_test");
}

TEST(Process, MklIsInItsReproducibleMode) {
  EXPECT_FALSE(code_paths().mkl.starts_with("OFF"));
}

// What MKL promises in that mode; without it this fails on CPUs of AMD. A program relies on less.
TEST(Process, MklsFp32ProductsAreTheSameAtEveryAddress) {
  const std::string mode = code_paths().mkl;
  if (mode == "none" || mode.starts_with("OFF")) GTEST_SKIP() << "MKL: " << mode;
  constexpr std::int64_t kRows = 58, kInner = 60, kColumns = 101;
  const at::Tensor a = at::rand({kRows, kInner}), b = at::rand({kInner, kColumns});
  const at::Tensor expected = at::mm(a, b);
  const auto moved = [](const at::Tensor& t, std::int64_t elems) {
    return at::empty({t.numel() + elems}).narrow(0, elems, t.numel()).view(t.sizes()).copy_(t);
  };
  for (std::int64_t elems = 1; elems < 16; ++elems) {
    EXPECT_TRUE(at::equal(at::mm(moved(a, elems), moved(b, elems)), expected)) << elems;
  }
}

TEST(Process, CodePathsAreThoseOfThisProcess) {
  const CodePaths paths = code_paths();
  EXPECT_EQ(paths.aten, at::get_cpu_capability());
  const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_EQ(paths.onednn, limit == nullptr ? "ALL" : limit);
  EXPECT_FALSE(paths.instructions.empty());
  std::ifstream cpu("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(cpu), {}};
  EXPECT_FALSE(paths.amx && text.find("amx_tile") == std::string::npos);
  EXPECT_EQ(paths.intel, text.find("GenuineIntel") != std::string::npos);
}

TEST(Process, DeterministicModeDoesNotFillFreshTensors) {
  set_deterministic();
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
}

}  // namespace
}  // namespace sluice::tensor
