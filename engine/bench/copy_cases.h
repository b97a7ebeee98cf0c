/// What the copy lanes of a run do with memory, beside plain loops over the same bytes.
#pragma once

#include <vector>

#include "engine/bench/memory_bench.h"

namespace sluice::bench {

/// "copy" from pinned host memory to the device (h2d), back (d2h) and both at once, each lane a
/// stream as in a run. Where the device computes in host memory, bytes count as read and as
/// written, and loops with as many threads are the roof; else they count once. Sizes up to `most`
/// bytes.
///
/// All work on the same memory, one at a time: two buffers of `most` bytes on each side, given back
/// with the last case.
/// Throws  kBudget when there is not that much; kDevice
std::vector<MemoryCase> copy_cases(Bytes most);

}  // namespace sluice::bench
