/// What a checkpoint holds of one chunk: the optimizer's state, its master weights, first and
/// second moments; or the gradient of an update that is still to come. Both as they lie in memory.
///
/// Layout  of state master, m, v, one after the other, fp32; of a gradient its elements in any
///         DType. Whole grains, so that the record and each of its parts begin on kAlignment of
///         their file
/// Units   elements of a segment's flat buffer (zero::Layout)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/dtype.h"
#include "engine/base/units.h"

namespace sluice::checkpoint {

enum class RecordKind : std::uint8_t { kState, kGradient };
inline constexpr std::array kRecordKinds = {RecordKind::kState, RecordKind::kGradient};

/// As tensors of a file are called: "layer.7/master[0:4096]".
inline constexpr std::array<const char*, 3> kStateParts = {"master", "m", "v"};
inline constexpr std::array<const char*, 1> kGradientParts = {"gradient"};

constexpr std::span<const char* const> parts_of(RecordKind kind) {
  if (kind == RecordKind::kState) return kStateParts;
  return kGradientParts;
}

struct Record {
  int segment = 0;
  std::uint64_t first_elem = 0, elems = 0;
  std::size_t file = 0;
  Bytes offset = 0;       ///< in its file
  std::uint64_t sum = 0;  ///< of all its grains: sum_of_grains()
  RecordKind kind = RecordKind::kState;
  DType dtype = DType::kF32;  ///< of its parts
  float factor = 0;           ///< of a gradient: what the update multiplies it by; finite

  std::uint64_t end_elem() const { return first_elem + elems; }
  Bytes part_bytes() const { return elems * size_of(dtype); }
  Bytes bytes() const { return parts_of(kind).size() * part_bytes(); }
  bool operator==(const Record&) const = default;
};

/// The grains [begin, end) of a chunk that begins at element `first_elem` of its segment, all
/// parts; `chunk` is all of it. Sums of several such ranges add up, modulo 2^64, to that of all of
/// them: so a record can be checked by whoever reads it in other pieces, in any order.
std::uint64_t sum_of_grains(RecordKind kind, DType dtype, std::uint64_t first_elem,
                            std::span<const std::byte> chunk, std::size_t begin, std::size_t end);

/// The same of a chunk's state.
std::uint64_t sum_of_state(std::uint64_t first_elem, std::span<const float> state,
                           std::size_t begin, std::size_t end);

/// The same of a chunk's gradient.
std::uint64_t sum_of_gradient(std::uint64_t first_elem, std::span<const std::byte> gradient,
                              DType dtype, std::size_t begin, std::size_t end);

}  // namespace sluice::checkpoint
