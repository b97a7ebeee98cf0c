#include "gpu/cuda/current.h"

#include <utility>

#include "engine/base/error.h"

namespace sluice::gpu::cuda {
namespace {

thread_local cudaStream_t current = nullptr;

}  // namespace

cudaStream_t current_stream() {
  SLUICE_CHECK(current != nullptr, kLogic, "a kernel was launched outside of a stream's work");
  return current;
}

Current::Current(cudaStream_t stream) : before_(std::exchange(current, stream)) {}

Current::~Current() {
  current = before_;
}

}  // namespace sluice::gpu::cuda
