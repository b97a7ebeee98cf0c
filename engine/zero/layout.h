/// Where each named tensor of a segment lies in its one flat buffer.
///
/// Shape   each tensor begins on a multiple of kTensorAlignElems; what lies between is padding and
///         holds zero; the whole is rounded up to a grain
/// Units   elements: the offsets are the same in every dtype
#pragma once

#include <cstdint>
#include <vector>

#include "engine/shape/model.h"

namespace sluice::zero {

/// 256 bytes in bf16, 512 in fp32: no two tensors share a cache line, and kernels may assume it.
inline constexpr std::uint64_t kTensorAlignElems = 128;

struct Placed {
  int tensor;  ///< index into Segment::tensors
  std::uint64_t offset_elems;
  std::uint64_t numel;

  std::uint64_t end() const { return offset_elems + numel; }
};

struct Layout {
  std::vector<Placed> tensors;  ///< in the order of the segment, by rising offset
  std::uint64_t elems = 0;      ///< of the flat buffer, padding included: whole grains
};

Layout make_layout(const shape::Segment& segment);

}  // namespace sluice::zero
