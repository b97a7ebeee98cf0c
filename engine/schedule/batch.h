/// What a micro-batch's buffer holds.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/units.h"

namespace sluice::schedule {

/// Views into int64 numbers; the first three are [B, S].
struct Batch {
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;    ///< below 0: none
  std::span<std::int64_t> positions;  ///< in the document: 0 begins one, which sees none before it
  /// Targets of the whole program, all micro-batches of the step: what losses are divided by.
  std::int64_t& program_targets;
};

constexpr Bytes batch_bytes(std::int64_t tokens) {
  return (3 * static_cast<Bytes>(tokens) + 1) * sizeof(std::int64_t);
}

inline Batch batch_of(std::span<std::int64_t> buffer) {
  const std::size_t n = (buffer.size() - 1) / 3;
  return {buffer.first(n), buffer.subspan(n, n), buffer.subspan(2 * n, n), buffer.back()};
}

}  // namespace sluice::schedule
