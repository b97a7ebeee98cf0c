/// All of a checkpoint's state from the first record to the last, read ahead of whoever looks at
/// it, then its gradients; all held against their sums.
///
/// Owns    some 36 MiB, whatever the checkpoint's size
/// Units   elements of a segment's flat buffer (zero::Layout)
/// Thread  the caller's, and those of `each`
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/base/error.h"
#include "engine/checkpoint/state_reader.h"
#include "engine/checkpoint/writer.h"

namespace sluice::checkpoint {

/// Some elements of a segment.
struct StatePiece {
  int segment = 0;
  std::uint64_t first_elem = 0;
  std::span<const float> master;
};

/// What is done with them, by the caller's thread.
struct Looks {
  /// Each piece of the state, in order; its numbers stay until this returns. Those of a record may
  /// come before its sum is known.
  std::function<void(const StatePiece&)> see;
  /// A record that is not what was written (kCheckpoint), or cannot be read (kIo): once it returns,
  /// the others follow.
  std::function<void(const Error&)> damaged;
};

/// `each` has the threads that add up, in whole grains. Throws what a look throws; kWatchdog, when
/// a drive no longer answers.
void scan_state(const StateReader& reader, const Each& each, const Looks& looks);

}  // namespace sluice::checkpoint
