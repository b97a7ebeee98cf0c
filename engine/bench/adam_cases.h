/// What the optimizer does with memory, for every way to do it, beside the roof of its bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_adam/options.h"
#include "engine/base/dtype.h"
#include "engine/bench/memory_bench.h"

namespace sluice::bench {

struct AdamQuestion {
  std::uint64_t most = 0;           ///< parameters; at least a grain
  DType type = DType::kBf16;        ///< of gradients and published weights
  std::vector<cpu_adam::Isa> isas;  ///< the preferred one first
  std::vector<unsigned> threads;    ///< the most last
};

/// Of each parameter that is updated: state, gradient and published weights.
constexpr Bytes memory_per_parameter(DType type) {
  return 3 * sizeof(float) + 2 * size_of(type);
}
/// State is read and written; a gradient is read, a published weight written: 28 with bf16.
constexpr Bytes moved_per_parameter(DType type) {
  return 6 * sizeof(float) + 2 * size_of(type);
}

/// Every size up to the most, with the preferred instructions and the most threads; at one size,
/// past most caches, every instruction set and number of threads. "update" is a whole step of AdamW
/// on a whole model in memory, "norm" what clipping needs of its gradient.
///
/// All work on the same memory, one at a time: it is from where a run has its own, takes
/// memory_per_parameter() of the largest size, and is given back with the last case.
/// Throws  kBudget when there is not that much
std::vector<MemoryCase> adam_cases(const AdamQuestion& question);

}  // namespace sluice::bench
