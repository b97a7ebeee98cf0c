/// What a micro-batch's buffer holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/base/units.h"

namespace sluice::schedule {

/// Views into int64 numbers; the first three are [B, S].
struct Batch {
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;    ///< below 0: none
  std::span<std::int64_t> positions;  ///< in the document: 0 begins one, which sees none before it
  /// 0, and the end of each document, counted over all rows; the last one again in what is left.
  std::span<std::int32_t> ends;
  /// Targets of the whole program, all micro-batches of the step: what losses are divided by.
  std::int64_t& program_targets;
};

constexpr Bytes batch_bytes(std::int64_t tokens) {
  return (4 * static_cast<Bytes>(tokens) + 2) * sizeof(std::int64_t);
}

inline Batch batch_of(std::span<std::int64_t> buffer) {
  const std::size_t n = (buffer.size() - 2) / 4;
  auto* ends = reinterpret_cast<std::int32_t*>(buffer.data() + 3 * n);
  return {buffer.first(n),
          buffer.subspan(n, n),
          buffer.subspan(2 * n, n),
          {ends, 2 * (n + 1)},
          buffer.back()};
}

/// Writes the ends: a document begins where its position says so, and with each row of `seq`.
inline void mark_documents(const Batch& batch, std::size_t seq) {
  const auto n = static_cast<std::int32_t>(batch.positions.size());
  auto end = batch.ends.begin();
  for (std::int32_t at = 0; at < n; ++at) {
    const auto i = static_cast<std::size_t>(at);
    if (i % seq == 0 || batch.positions[i] == 0) *end++ = at;
  }
  std::fill(end, batch.ends.end(), n);
}

}  // namespace sluice::schedule
