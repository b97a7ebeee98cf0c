/// Chunks: runs of grains of one segment, the unit of the optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/units.h"
#include "engine/shape/model.h"
#include "engine/zero/layout.h"
#include "engine/zero/options.h"

namespace sluice::zero {

/// What one update is counted to move: the state in and out, a gradient in. With split masters it
/// is 2 less, and its time is of as many.
inline constexpr Bytes kUpdateBytesPerElem = 2 * kStateBytesPerElem + 4;

struct Chunk {
  std::uint64_t first_elem;  ///< of the segment's flat buffer
  std::uint64_t elems;

  bool operator==(const Chunk&) const = default;
};

/// How many elements have `sub_group_size` bytes of state: whole grains, rounded down. nullopt is
/// 32 MiB, until engine/plan has chosen. Throws kConfig when that is less than a grain.
std::uint64_t chunk_elems(std::optional<Bytes> sub_group_size);

/// Cuts a segment into chunks of `chunk_elems`, the last one shorter. Both are whole grains
/// (kLogic).
std::vector<Chunk> make_chunks(std::uint64_t segment_elems, std::uint64_t chunk_elems);

/// A stretch of a chunk that the optimizer treats alike.
struct Run {
  std::uint64_t first_elem;  ///< of the segment's flat buffer, as in Chunk
  std::uint64_t elems;
  bool decayed;  ///< weight decay applies
  int tensor;    ///< index into Segment::tensors; -1: padding

  bool operator==(const Run&) const = default;
};

/// The runs of one chunk, by rising element, without a gap: one per tensor or stretch of padding
/// that the chunk touches. Throws kLogic when the chunk leaves the layout.
std::vector<Run> runs(const shape::Segment& segment, const Layout& layout, Chunk chunk);

}  // namespace sluice::zero
