/// Threads of a device's kernels, one after the other on the host: a Launch for gpu/kernel_calls.h.
#pragma once

#include <array>
#include <cstddef>

#include "engine/base/units.h"
#include "gpu/kernels.h"

namespace sluice::gpu {

/// Whole blocks of threads, the last thread first: none may count on one before it.
struct Loop {
  static constexpr std::size_t kBlock = 64;

  template <class Kernel>
  void each(const Kernel& kernel, std::size_t threads) const {
    for (std::size_t t = round_up(threads, kBlock); t-- != 0;) kernel(t);
  }

  template <class Kernel>
  void grains(const Kernel& kernel, std::size_t threads) const {
    for (std::size_t block = round_up(threads, kBlock); block != 0; block -= kBlock) {
      const std::size_t first = block - kBlock;
      std::array<double, kBlock> lanes{};
      for (std::size_t t = kBlock; t-- != 0;) lanes[t] = kernel.lane(first + t);
      for (std::size_t t = kBlock; t-- != 0;) {
        const std::size_t of_grain = t / kernels::Lanes::kCount * kernels::Lanes::kCount;
        kernel.fold(first + t, lanes.data() + of_grain);
      }
    }
  }
};

}  // namespace sluice::gpu
