#include "gpu/arithmetic.h"

#include "gpu/cuda/answer.h"
#include "gpu/cuda/current.h"
#include "gpu/kernel_calls.h"

namespace sluice::gpu {
namespace {

constexpr unsigned kBlock = 256;  // threads
static_assert(kBlock % kernels::Lanes::kCount == 0, "the lanes of a grain share a block");

__device__ std::size_t this_thread() {
  return std::size_t{blockIdx.x} * kBlock + threadIdx.x;
}

template <class Kernel>
__global__ void __launch_bounds__(kBlock) run_each(Kernel kernel) {
  kernel(this_thread());
}

template <class Kernel>
__global__ void __launch_bounds__(kBlock) run_grains(Kernel kernel) {
  __shared__ double lanes[kBlock];
  lanes[threadIdx.x] = kernel.lane(this_thread());
  __syncthreads();
  kernel.fold(this_thread(), lanes + threadIdx.x / kernels::Lanes::kCount * kernels::Lanes::kCount);
}

/// On the stream whose work is being enqueued.
struct Launch {
  template <class Kernel>
  void each(const Kernel& kernel, std::size_t threads) const {
    run_each<<<blocks(threads), kBlock, 0, cuda::current_stream()>>>(kernel);
    cuda::check(cudaGetLastError(), "asked for a kernel of the optimizer");
  }
  template <class Kernel>
  void grains(const Kernel& kernel, std::size_t threads) const {
    run_grains<<<blocks(threads), kBlock, 0, cuda::current_stream()>>>(kernel);
    cuda::check(cudaGetLastError(), "asked for a kernel of the norm");
  }

  static unsigned blocks(std::size_t threads) {
    return static_cast<unsigned>(div_ceil(threads, kBlock));
  }
};

constexpr KernelCalls<Launch> kOnDevice{Launch()};

}  // namespace

void Arithmetic::update(const cpu_adam::Hyper& hyper, cpu_adam::State state,
                        cpu_adam::Gradient gradient, cpu_adam::Published published) const {
  kOnDevice.update(hyper, state, gradient, published);
}

void Arithmetic::grain_norms(cpu_adam::Gradient gradient, std::span<double> partials) const {
  kOnDevice.grain_norms(gradient, partials);
}

void Arithmetic::accumulate(std::span<float> sum, cpu_adam::Values contribution) const {
  kOnDevice.accumulate(sum, contribution);
}

void Arithmetic::assign(std::span<float> sum, cpu_adam::Values contribution) const {
  kOnDevice.assign(sum, contribution);
}

void Arithmetic::add(std::span<float> out, cpu_adam::Values a, cpu_adam::Values b) const {
  kOnDevice.add(out, a, b);
}

void Arithmetic::fill(std::span<std::byte> bytes, std::byte value) const {
  if (bytes.empty()) return;
  cuda::check(cudaMemsetAsync(bytes.data(), std::to_integer<int>(value), bytes.size(),
                              cuda::current_stream()),
              "asked to fill memory");
}

}  // namespace sluice::gpu
