#pragma once

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

  Measured measure(gpu::Stream& stream, Bytes most) override {
    return inner_->measure(stream, most);
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

}  // namespace sluice::train
