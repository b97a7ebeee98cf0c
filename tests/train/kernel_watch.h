/// What the optimizer's kernels did in a run: which instruction set, which stores, and whether
/// calls were cut into ranges for several threads. Seen at two seams that the linker makes
/// (`--wrap`, see CMakeLists.txt): no product code knows of it.
///
/// Thread  counting: any; taking: while nothing runs
#pragma once

#include <cstdint>
#include <map>

#include "cpu_adam/options.h"

namespace sluice::train {

/// Calls of one kernel. A call is cut when it is one of several ranges of a span; that depends on
/// the span's length and on whether there are several threads, not on which thread comes in time.
struct Calls {
  std::uint64_t all = 0;
  std::uint64_t cut = 0;
};

/// Of one instruction set.
struct KernelWork {
  Calls updates, norms, sums;
  /// Elements of updates that were asked to stream and whose outputs all begin on 64-byte lines.
  std::uint64_t streamed = 0;
};

/// What was done since the last call, by instruction set.
std::map<cpu_adam::Isa, KernelWork> take_kernel_work();

}  // namespace sluice::train
