/// What a run file may choose of how the state is cut: sub_group_size bytes a chunk, no less than
/// one grain.
#pragma once

#include "engine/base/units.h"

namespace sluice::zero {

/// Master weight, first and second moment, all fp32.
inline constexpr Bytes kStateBytesPerElem = 12;
/// The same where bf16 weights at hand tell the masters' upper halves: cpu_adam's SplitState.
inline constexpr Bytes kSplitStateBytesPerElem = 10;
/// The smallest chunk: one grain.
inline constexpr Bytes kMinChunkState = kGrainElems * kStateBytesPerElem;
static_assert(kMinChunkState == 48_KiB);

}  // namespace sluice::zero
