/// Streaming or cached stores: which is faster here, by trying both.
#pragma once

#include "cpu_adam/kernel.h"
#include "cpu_adam/workers.h"
#include "engine/base/units.h"

namespace sluice::cpu_adam {

struct StoreTimes {
  double streaming_ns = 0;  ///< per parameter, the best of a few passes
  double cached_ns = 0;
};

/// So many parameters are updated: they take twice the last cache, from 32 to 256 MiB. In a cache
/// cached stores win that lose in a run. `last_cache` 0: not known.
std::size_t probed_parameters(Bytes last_cache);

/// Updates them a few times each way.
StoreTimes probe_stores(const Kernels& kernels, const Workers& workers);

}  // namespace sluice::cpu_adam
