/// What stands in the file of a bench: noise, which no drive can make smaller, and in each block of
/// kAlignment bytes its place and which write brought it there. So bytes of another place show, and
/// so do those of an earlier write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/units.h"
#include "nvme/aligned.h"

namespace sluice::bench {

/// Thread  any, on ranges that do not overlap
class Pattern {
 public:
  /// Of a line of `bytes`. Every range begins on a multiple of `period` and is no longer.
  Pattern(Bytes bytes, Bytes period, std::uint64_t seed);

  /// Memory for writing, once: as much of each period as there is.
  void fill(std::span<std::byte> memory) const;
  /// Makes filled memory what the next write brings to `offset`; from now on it is expected there.
  void stamp(std::span<std::byte> memory, Bytes offset);
  /// The first byte of the line that is not as expected, of what was read from `offset`.
  std::optional<Bytes> first_wrong(std::span<const std::byte> memory, Bytes offset) const;

 private:
  struct Stamp {
    std::uint64_t place = 0, write = 0;
  };
  Stamp expected(Bytes offset) const;

  const Bytes period_;
  const std::uint64_t seed_;
  nvme::AlignedBytes noise_;           // one period
  std::vector<std::uint32_t> writes_;  // by block: how many there were
};

}  // namespace sluice::bench
