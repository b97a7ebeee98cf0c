#include "engine/tensor/workspace.h"

#include <ATen/Context.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/tensor/allocator.h"
#include "engine/tensor/process.h"
#include "engine/tensor/view.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"
#include "tests/gpu/needs_device.h"
#include "tests/support/errors.h"

namespace sluice::tensor {
namespace {

using test::expect_error;

at::TensorOptions options() {
  return at::TensorOptions(at::kFloat).device(device());
}

TEST(CudaProcess, CublasHasAConfigurationOfOneOrder) {
  const char* set = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  ASSERT_NE(set, nullptr);
  EXPECT_TRUE(std::string(set) == ":4096:8" || std::string(set) == ":16:8") << set;
}

TEST(CudaProcess, SumsKeepTheirPrecision) {
  set_deterministic();
  const at::Context& context = at::globalContext();
  EXPECT_TRUE(context.deterministicCuDNN());
  EXPECT_FALSE(context.allowTF32CuBLAS());
  EXPECT_FALSE(context.allowTF32CuDNN());
  constexpr auto kWhole = at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
  EXPECT_EQ(context.allowFP16ReductionCuBLAS(), kWhole);
  EXPECT_EQ(context.allowBF16ReductionCuBLAS(), kWhole);
}

TEST(CudaProcess, Tf32IsForWhoAsks) {
  set_deterministic();
  allow_tf32();
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
  set_deterministic();
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
}

TEST(CudaAllocator, RefusesWhatNoRunNeeds) {
  install_allocator();
  namespace allocation = c10::cuda::CUDACachingAllocator;
  EXPECT_EQ(allocation::get()->name(), "sluice");
  EXPECT_EQ(allocation::raw_alloc(0), nullptr);
  expect_error(Errc::kLogic, {"a snapshot"}, [] { allocation::snapshot(); });
}

TEST(CudaView, IsOnTheDevice) {
  alignas(64) float memory[2] = {};
  EXPECT_EQ(view(memory, {2}, DType::kF32).device(), at::Device(at::kCUDA, 0));
}

class CudaWorkspace : public gpu::NeedsDevice {
 protected:
  void SetUp() override {
    gpu::NeedsDevice::SetUp();
    if (IsSkipped()) return;
    install_allocator();
    stream_.emplace("test");
  }
  std::span<std::byte> memory(Bytes n) {
    const gpu::DeviceBlock& block = blocks_.emplace_back(heap_.allocate(n));
    return {block.data(), n};
  }
  static bool inside(std::span<std::byte> range, const at::Tensor& t) {
    const auto* p = static_cast<const std::byte*>(t.data_ptr());
    return p >= range.data() && p < range.data() + range.size();
  }
  void on_stream(std::function<void()> work) { stream_->run(std::move(work)).ticket().wait(); }
  std::vector<float> read(std::span<std::byte> from) {
    std::vector<float> host(from.size() / sizeof(float));
    stream_->copy(host.data(), from.data(), from.size()).ticket().wait();
    return host;
  }

 private:
  gpu::DeviceHeap heap_{1_GiB};
  std::vector<gpu::DeviceBlock> blocks_;
  std::optional<gpu::Stream> stream_;
};

TEST_F(CudaWorkspace, AnOpOutsideOfAStreamsWorkIsAnError) {
  Workspace workspace(memory(1_MiB), 0);
  expect_error(Errc::kLogic, {"stream"}, [&] { OpScope scope(workspace, "op"); });
}

TEST_F(CudaWorkspace, TensorsOfAnOpLieInItAndCpuTensorsDoNot) {
  const auto range = memory(1_MiB);
  Workspace workspace(range, 0);
  on_stream([&] {
    OpScope scope(workspace, "op");
    EXPECT_TRUE(inside(range, at::ones({10}, options())));
    EXPECT_FALSE(inside(range, at::ones({10}, at::TensorOptions(at::kFloat))));
    scope.close();
    EXPECT_FALSE(inside(range, at::ones({10}, options())));
  });
}

// Neither a first product, for which cuBLAS takes its workspace, nor a later one.
TEST_F(CudaWorkspace, AProductLeavesNothingInAnOp) {
  const auto range = memory(4_MiB);
  const auto result = memory(64 * 64 * sizeof(float));
  Workspace workspace(range, 0);
  for (int op = 0; op < 2; ++op) {
    on_stream([&] {
      OpScope scope(workspace, "op");
      {
        at::Tensor out = view(result.data(), {64, 64}, DType::kF32);
        const at::Tensor a = at::ones({64, 64}, options());
        at::mm_out(out, a, a);
      }
      scope.close();
    });
    EXPECT_EQ(read(result), std::vector<float>(64 * 64, 64));
  }
}

TEST_F(CudaWorkspace, WhatWasMeasuredFitsExactlyAndAtTheSameOffsets) {
  const auto work = [] {
    std::vector<std::uintptr_t> places;
    at::Tensor x = at::ones({33, 47}, options());
    for (std::int64_t i = 1; i < 5; ++i) {
      places.push_back(reinterpret_cast<std::uintptr_t>(x.data_ptr()));
      const at::Tensor y = at::mm(x, at::ones({47, 13 * i}, options()));
      x = at::mm(y, at::ones({13 * i, 47}, options()));
    }
    const std::uintptr_t first = places.front();
    for (auto& place : places) place -= first;
    return places;
  };
  std::vector<std::uintptr_t> expected, places;
  Bytes need = 0;
  {
    Workspace measuring = Workspace::measuring(gpu::free_memory());
    on_stream([&] {
      OpScope scope(measuring, "measured");
      expected = work();
    });
    need = measuring.peak().main;
  }
  ASSERT_GT(need, 0U);
  Workspace exact(memory(need), 0);
  on_stream([&] {
    OpScope scope(exact, "exact");
    places = work();
  });
  EXPECT_EQ(places, expected);
  EXPECT_EQ(exact.peak().main, need);
}

TEST_F(CudaWorkspace, MeasuringGivesItsMemoryBack) {
  const Bytes before = gpu::free_memory();
  { const Workspace measuring = Workspace::measuring(before); }
  EXPECT_NO_THROW(memory(512_MiB));
}

TEST_F(CudaWorkspace, ClearIsInTheOrderOfTheStream) {
  const auto range = memory(4_KiB);
  on_stream([&] { view(range.data(), {1024}, DType::kF32).fill_(7); });
  on_stream([&] { clear(range.first(2_KiB)); });
  std::vector<float> expected(1024, 7);
  std::fill_n(expected.begin(), 512, 0.0F);
  EXPECT_EQ(read(range), expected);
}

}  // namespace
}  // namespace sluice::tensor
