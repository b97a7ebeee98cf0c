#include "engine/tensor/backend.h"

#include <ATen/Context.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/tensor/view.h"
#include "gpu/cuda/current.h"
#include "gpu/device.h"
#include "gpu/memory.h"

// Of ATen/cuda/CUDAContextLight.h, which includes the headers of cuBLAS, cuSPARSE and cuSOLVER; to
// build, sluice needs none of them.
namespace at::cuda {
void* getCurrentCUDABlasHandle();
void* getCUDABlasLtWorkspace();
}  // namespace at::cuda

namespace sluice::tensor::backend {
namespace {

/// Each piece is a block of the device's own: they are few, and kept long.
class Outside {
 public:
  void* take(Bytes n) {
    gpu::DeviceBlock block = heap_.allocate(n);
    void* const p = block.data();
    const std::scoped_lock lock(mutex_);
    blocks_.emplace(p, std::move(block));
    return p;
  }
  void give_back(void* p) noexcept {
    gpu::DeviceBlock block;  // goes home when nobody waits for the lock
    const std::scoped_lock lock(mutex_);
    if (const auto at = blocks_.find(p); at != blocks_.end()) {
      block = std::move(at->second);
      blocks_.erase(at);
    }
  }

 private:
  gpu::DeviceHeap heap_{gpu::device().memory};
  std::mutex mutex_;
  std::unordered_map<void*, gpu::DeviceBlock> blocks_;
};

Outside& outside() {
  static auto* const all = new Outside;  // LibTorch may give back until the very end
  return *all;
}

}  // namespace

void* take_outside(Bytes n) {
  return outside().take(n);
}

void give_back_outside(void* p) noexcept {
  outside().give_back(p);
}

struct Reservation::Range {
  gpu::DeviceBlock block;
};

// All at once: of device memory there are no addresses to be had without the memory. OpenMP workers
// take none of it.
Reservation::Reservation(Bytes most) {
  // For what comes while ops are measured: kernels are loaded when they are first launched, and
  // libraries keep something for each stream.
  constexpr Bytes kLeft = 1_GiB;
  const Bytes free = gpu::free_memory();
  SLUICE_CHECK(free > kLeft, kBudget,
               fmt::format("workspace: the device has {} free, and measuring ops leaves {} of that "
                           "alone; end what else uses the device",
                           format_bytes(free), format_bytes(kLeft)));
  range_ =
      std::make_unique<Range>(Range{gpu::DeviceHeap(free).allocate(std::min(most, free - kLeft))});
}

Reservation::~Reservation() = default;

std::byte* Reservation::main() const {
  return range_->block.data();
}
Bytes Reservation::main_size() const {
  return range_->block.size();
}
Bytes Reservation::side_size() const {
  return 0;
}

void Reservation::commit_main(Bytes) {}
void Reservation::commit_side(Bytes) {}

std::optional<c10::Stream> stream_of_ops() {
  const c10::Stream stream =
      c10::cuda::getStreamFromExternal(gpu::cuda::current_stream(), device().index());
  at::globalContext().lazyInitDevice(device().type());
  // cuBLAS gets a workspace for each pair of handle and stream, a handle for each thread, when it
  // is first asked for, and LibTorch keeps them all. Taken inside an op they would outlive it.
  const c10::StreamGuard guard(stream);
  at::cuda::getCurrentCUDABlasHandle();
  at::cuda::getCUDABlasLtWorkspace();
  return stream;
}

std::span<const Variable> variables() {
  static constexpr std::array kVariables{
      // Eight buffers of 4 MiB for each handle and stream: one of the two configurations in which
      // cuBLAS promises the same bits in every repeat.
      Variable{"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
  };
  return kVariables;
}

void set_deterministic() {
  auto& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  // fp32 is fp32, and sums of 16-bit products are kept in fp32 to their end.
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowFP16AccumulationCuBLAS(false);
}

void allow_tf32() {
  at::globalContext().setAllowTF32CuBLAS(true);
}

}  // namespace sluice::tensor::backend
