/// What a checkpoint holds of one chunk of the optimizer: its master weights, first and second
/// moments, as they lie in memory.
///
/// Layout  master, m, v, one after the other, fp32; whole grains, so that the record and each of
///         its three parts begin on kAlignment of their file
/// Units   elements of a segment's flat buffer (zero::Layout)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/units.h"
#include "engine/zero/options.h"

namespace sluice::checkpoint {

/// As tensors of a file are called: "layer.7/master[0:4096]".
inline constexpr std::array<const char*, 3> kStateParts = {"master", "m", "v"};

struct Record {
  int segment = 0;
  std::uint64_t first_elem = 0, elems = 0;
  std::size_t file = 0;
  Bytes offset = 0;       ///< in its file
  std::uint64_t sum = 0;  ///< of all its grains: sum_of_grains()

  std::uint64_t end_elem() const { return first_elem + elems; }
  Bytes bytes() const { return elems * zero::kStateBytesPerElem; }
  bool operator==(const Record&) const = default;
};

/// Whole grains of one part (index of kStateParts), from element `first_elem` of their segment on.
/// Sums of several such ranges add up, modulo 2^64, to that of all of them: so a record can be
/// checked by whoever reads it in other pieces, in any order.
std::uint64_t sum_of_grains(std::size_t part, std::uint64_t first_elem,
                            std::span<const float> values);

/// The grains [begin, end) of a chunk's state that begins at element `first_elem`, all three parts.
std::uint64_t sum_of_state(std::uint64_t first_elem, std::span<const float> state,
                           std::size_t begin, std::size_t end);

}  // namespace sluice::checkpoint
