#include "engine/tensor/workspace.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/tensor/allocator.h"
#include "tests/support/errors.h"

namespace sluice::tensor {
namespace {

using test::expect_error;

at::Tensor bytes_of(Bytes n) {
  return at::empty({static_cast<std::int64_t>(n)}, at::TensorOptions(at::kByte));
}

class WorkspaceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_allocator(); }

  // Memory of a workspace, aligned.
  std::span<std::byte> memory(Bytes n) {
    storage_.resize(n + Arena::kStep);
    const auto at = reinterpret_cast<std::uintptr_t>(storage_.data());
    return {storage_.data() + (round_up(at, Arena::kStep) - at), n};
  }
  bool inside(std::span<std::byte> range, const at::Tensor& t) {
    const auto* p = static_cast<const std::byte*>(t.data_ptr());
    return p >= range.data() && p < range.data() + range.size();
  }

 private:
  std::vector<std::byte> storage_;
};

// Some LibTorch work whose temporaries come and go; returns where each lay.
std::vector<std::uintptr_t> work(const std::byte* base) {
  std::vector<std::uintptr_t> offsets;
  const auto note = [&](const at::Tensor& t) {
    offsets.push_back(reinterpret_cast<std::uintptr_t>(t.data_ptr()) -
                      reinterpret_cast<std::uintptr_t>(base));
  };
  at::Tensor x = at::ones({33, 47});
  note(x);
  for (std::int64_t i = 1; i < 5; ++i) {
    const at::Tensor w = at::ones({47, 13 * i});
    note(w);
    const at::Tensor y = at::mm(x, w);
    note(y);
    x = at::mm(y, at::ones({13 * i, 47}));
    note(x);
  }
  return offsets;
}

TEST_F(WorkspaceTest, OutsideAnOpMemoryIsMallocAndAligned) {
  const auto range = memory(1_MiB);
  Workspace workspace(range, 64_KiB);
  for (Bytes n = 1; n < 300; n += 7) {
    const at::Tensor t = bytes_of(n);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data_ptr()) % 64, 0u);
    EXPECT_FALSE(inside(range, t));
  }
  EXPECT_EQ(bytes_of(0).data_ptr(), nullptr);
  EXPECT_EQ(workspace.peak().main, 0u);
}

TEST_F(WorkspaceTest, InsideAnOpEveryTensorLiesInTheWorkspace) {
  const auto range = memory(1_MiB);
  Workspace workspace(range, 64_KiB);
  OpScope scope(workspace, "op");
  {
    const at::Tensor a = at::ones({10, 10});
    const at::Tensor b = at::add(a, a);
    EXPECT_TRUE(inside(range, a));
    EXPECT_TRUE(inside(range, b));
  }
  scope.close();
  EXPECT_EQ(workspace.peak().main, 2 * round_up(400, 64));
  EXPECT_FALSE(inside(range, at::ones({10, 10})));
}

TEST_F(WorkspaceTest, WhatWasMeasuredFitsExactlyAndAtTheSameOffsets) {
  Workspace measuring = Workspace::measuring(1_GiB);
  std::vector<std::uintptr_t> expected;
  {
    OpScope scope(measuring, "measured");
    at::Tensor first = bytes_of(1);
    const auto* base = static_cast<const std::byte*>(first.data_ptr());
    first.reset();
    expected = work(base);
    scope.close();
  }
  const Bytes need = measuring.peak().main;
  ASSERT_GT(need, 0u);
  {
    const auto range = memory(need);
    Workspace exact(range, 0);
    OpScope scope(exact, "exact");
    EXPECT_EQ(work(range.data()), expected);
    scope.close();
    EXPECT_EQ(exact.peak().main, need);
  }
  const auto range = memory(need - Arena::kStep);
  Workspace small(range, 0);
  OpScope scope(small, "layer 3 backward");
  expect_error(Errc::kBudget, {"layer 3 backward", "asked", "free"}, [&] { work(range.data()); });
}

TEST_F(WorkspaceTest, AnOpThatFailedLeavesTheWorkspaceUsable) {
  const auto range = memory(64_KiB);
  Workspace workspace(range, 0);
  OpScope scope(workspace, "op");
  const at::Tensor a = at::ones({64, 64});  // 16 KiB
  EXPECT_THROW(at::mm(at::ones({64, 64}), at::ones({64, 512})), Error);
  EXPECT_EQ(at::add(a, a).data_ptr<float>()[5], 2.0F);
}

TEST_F(WorkspaceTest, ATensorThatOutlivesItsOpIsAnErrorThatNamesTheOp) {
  const auto range = memory(64_KiB);
  Workspace workspace(range, 0);
  at::Tensor escaped;
  {
    OpScope scope(workspace, "head");
    escaped = at::ones({5});
    expect_error(Errc::kLogic, {"head"}, [&] { scope.close(); });
  }
  expect_error(Errc::kLogic, {"next"}, [&] { OpScope next(workspace, "next"); });
  escaped.reset();  // finds its way home without a scope
  OpScope next(workspace, "next");
  next.close();
}

TEST_F(WorkspaceTest, OneOpRunsAtATime) {
  Workspace first(memory(4_KiB), 0);
  Workspace second = Workspace::measuring(1_GiB);
  std::optional<OpScope> scope(std::in_place, first, "a");
  EXPECT_THROW(OpScope(second, "b"), Error);
  std::thread([&] { EXPECT_THROW(OpScope(second, "b"), Error); }).join();
  scope.reset();
  OpScope(second, "b").close();
}

TEST_F(WorkspaceTest, OtherThreadsUseMallocWhileAnOpRuns) {
  const auto range = memory(1_MiB);
  Workspace workspace(range, 64_KiB);
  OpScope scope(workspace, "op");
  std::thread([&] { EXPECT_FALSE(inside(range, at::ones({10}))); }).join();
}

TEST_F(WorkspaceTest, OpenMpWorkersUseTheSideArena) {
  const auto range = memory(1_MiB);
  Workspace workspace(range, 256_KiB);
  const auto side = range.last(256_KiB);
  OpScope scope(workspace, "op");
  std::atomic<int> on_side{0}, on_main{0};
#pragma omp parallel num_threads(4)
  for (int i = 0; i < 200; ++i) {
    const at::Tensor t = bytes_of(1000);
    (inside(side, t) ? on_side : on_main) += inside(range, t) ? 1 : 1000000;
  }
  scope.close();
  EXPECT_EQ(on_side, 3 * 200);
  EXPECT_EQ(on_main, 200);
  EXPECT_EQ(workspace.peak().main, 1024u);
  EXPECT_GE(workspace.peak().side, 1024u);
  EXPECT_LE(workspace.peak().side, 3 * 1024u);
  EXPECT_EQ(workspace.peak().spilled, 0u);
}

TEST_F(WorkspaceTest, WhatTheSideArenaCannotHoldIsMallocAndReported) {
  const auto range = memory(1_MiB);
  Workspace workspace(range, 4_KiB);
  OpScope scope(workspace, "op");
#pragma omp parallel num_threads(2)
  {
    const at::Tensor t = bytes_of(8_KiB);
    EXPECT_EQ(inside(range, t), omp_get_thread_num() == 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data_ptr()) % 64, 0U);
  }
  scope.close();
  EXPECT_EQ(workspace.peak().spilled, 8_KiB);
}

TEST_F(WorkspaceTest, AWorkerMayFreeWhatTheOpsThreadMade) {
  const auto range = memory(1_MiB);
  Workspace workspace(range, 64_KiB);
  OpScope scope(workspace, "op");
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 64; ++i) tensors.push_back(bytes_of(1000));
#pragma omp parallel for num_threads(4)
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].reset();
  const at::Tensor again = bytes_of(64 * 1024);
  EXPECT_EQ(again.data_ptr(), static_cast<void*>(range.data()));
}

TEST_F(WorkspaceTest, AnotherThreadMayFreeATensorOfTheOp) {
  const auto range = memory(64_KiB);
  Workspace workspace(range, 0);
  OpScope scope(workspace, "op");
  at::Tensor t = bytes_of(60_KiB);
  std::thread([&] { t.reset(); }).join();
  EXPECT_TRUE(inside(range, bytes_of(60_KiB)));
  scope.close();
}

TEST_F(WorkspaceTest, MemoryMadeBeforeTheOpMayBeFreedInIt) {
  Workspace workspace(memory(64_KiB), 0);
  at::Tensor t = at::ones({100});
  OpScope scope(workspace, "op");
  t.reset();
  scope.close();
}

TEST_F(WorkspaceTest, RefusesMemoryThatCannotHoldIt) {
  const auto range = memory(4_KiB);
  EXPECT_THROW(Workspace(range.subspan(8), 0), Error);
  EXPECT_THROW(Workspace(range, 8_KiB), Error);
}

}  // namespace
}  // namespace sluice::tensor
