// gpu::Arithmetic of programs with the emulated runtime: the device's kernels (gpu/kernels.h)
// thread by thread, on the stream whose work the caller is in. The linker does not take the room's
// then.
#include "gpu/arithmetic.h"

#include <cstring>

#include "gpu/cuda/current.h"
#include "gpu/kernel_calls.h"
#include "tests/gpu/cuda/emulated_runtime.h"
#include "tests/gpu/loop.h"

namespace sluice::gpu {
namespace {

struct Launch {
  template <class Kernel>
  void each(const Kernel& kernel, std::size_t threads) const {
    emulated::launch(cuda::current_stream(), [=] { Loop().each(kernel, threads); });
  }
  template <class Kernel>
  void grains(const Kernel& kernel, std::size_t threads) const {
    emulated::launch(cuda::current_stream(), [=] { Loop().grains(kernel, threads); });
  }
};

constexpr KernelCalls<Launch> kEmulated{Launch()};

}  // namespace

void Arithmetic::update(const cpu_adam::Hyper& hyper, cpu_adam::State state,
                        cpu_adam::Gradient gradient, cpu_adam::Published published) const {
  kEmulated.update(hyper, state, gradient, published);
}

void Arithmetic::grain_norms(cpu_adam::Gradient gradient, std::span<double> partials) const {
  kEmulated.grain_norms(gradient, partials);
}

void Arithmetic::accumulate(std::span<float> sum, cpu_adam::Values contribution) const {
  kEmulated.accumulate(sum, contribution);
}

void Arithmetic::assign(std::span<float> sum, cpu_adam::Values contribution) const {
  kEmulated.assign(sum, contribution);
}

void Arithmetic::add(std::span<float> out, cpu_adam::Values a, cpu_adam::Values b) const {
  kEmulated.add(out, a, b);
}

void Arithmetic::fill(std::span<std::byte> bytes, std::byte value) const {
  emulated::launch(cuda::current_stream(),
                   [=] { std::memset(bytes.data(), std::to_integer<int>(value), bytes.size()); });
}

}  // namespace sluice::gpu
