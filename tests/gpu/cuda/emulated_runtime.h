/// A CUDA runtime for tests on machines without a GPU: those functions of it that gpu/cuda calls,
/// with a thread per stream and host memory for the device's. A program that has it does not use
/// the real one. Kernels are functions; nvcc's are not launched.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "engine/base/clock.h"
#include "engine/base/units.h"

namespace sluice::gpu::emulated {

struct Machine {
  int driver = 13000;  ///< 0: none
  int devices = 1;
  int major = 9;
  int minor = 0;
  Bytes memory = 1_GiB;
  Bytes of_others = 0;                     ///< of `memory`, what other processes hold
  cudaError_t registration = cudaSuccess;  ///< what cudaHostRegister answers
};

/// While it lives, the machine is another one. One at a time, without streams that outlive it.
class On {
 public:
  explicit On(const Machine& machine);
  On(On&&) = delete;
  ~On();
};

/// Calls so far in which the host stood still for the device: of any thread, to take or give back
/// memory of the device's or to register some, or to copy from or to memory that is neither; of
/// threads that give the device work, to wait for a stream or an event. Others may wait: that is
/// what they are for.
std::size_t host_waits();

/// Pieces of device memory that are taken. They begin on multiples of 256, as the runtime promises.
std::size_t allocations();

/// Host memory that is registered.
Bytes registered();

/// What registering has made so far of host memory that nobody had touched.
Bytes untouched();

/// What `kernel` does is done on the stream, in its turn.
void launch(cudaStream_t stream, std::function<void()> kernel);

/// As a launch that the device refuses.
void refuse_launch(cudaError_t error);

/// As a kernel that kills the context: from then on everything answers `error`. Until the On ends.
void break_device(cudaError_t error);

/// The device's clock, which stands still from the first call on. Until the On ends.
void set_clock(Nanos time);

}  // namespace sluice::gpu::emulated
