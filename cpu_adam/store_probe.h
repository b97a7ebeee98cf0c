/// Streaming or cached stores: which is faster here, by trying both.
#pragma once

#include "cpu_adam/kernel.h"
#include "cpu_adam/workers.h"

namespace sluice::cpu_adam {

struct StoreTimes {
  double streaming_ns = 0;  ///< per parameter, the best of a few passes
  double cached_ns = 0;
};

/// Updates 2 Mi parameters (32 MiB, more than most last-level caches) a few times each way.
StoreTimes probe_stores(const Kernels& kernels, const Workers& workers);

}  // namespace sluice::cpu_adam
