#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "engine/train/compute.h"

namespace sluice::train {

/// Passes every call on to another one.
class WrappedCompute : public Compute {
 public:
  explicit WrappedCompute(std::unique_ptr<Compute> inner) : inner_(std::move(inner)) {}

  Measured measure(gpu::Stream& stream, Bytes most, Wanted wanted) override {
    return inner_->measure(stream, most, wanted);
  }
  std::function<void()> example(gpu::Stream& stream) override { return inner_->example(stream); }
  void set_workspace(std::span<std::byte> memory, Bytes side) override {
    inner_->set_workspace(memory, side);
  }
  WorkspaceUse peak() const override { return inner_->peak(); }
  void run(const OpBytes& op) override { inner_->run(op); }

 private:
  const std::unique_ptr<Compute> inner_;
};

/// As LibTorch's libraries do when they are first called, takes memory of the device for itself.
class KeepingCompute : public WrappedCompute {
 public:
  KeepingCompute(std::unique_ptr<Compute> inner, Bytes kept)
      : WrappedCompute(std::move(inner)), kept_(kept) {}
  ~KeepingCompute() override { cudaFree(memory_); }
  KeepingCompute(const KeepingCompute&) = delete;
  KeepingCompute& operator=(const KeepingCompute&) = delete;

  Measured measure(gpu::Stream& stream, Bytes most, Wanted wanted) override {
    EXPECT_EQ(cudaMalloc(&memory_, kept_), cudaSuccess);
    return WrappedCompute::measure(stream, most, wanted);
  }

 private:
  const Bytes kept_;
  void* memory_ = nullptr;
};

}  // namespace sluice::train
