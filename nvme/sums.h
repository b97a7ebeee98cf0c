/// Sums of what was written, so that a byte that comes back otherwise is noticed.
///
/// A record is the bytes of one write. It is cut into units, the last of which may be shorter, and
/// each has an XXH3 of 64 bits in memory: 8 bytes for 256 KiB.
///
/// Thread  any, several at a time; not two on the same bytes, of which one notes
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/units.h"
#include "nvme/placement.h"

namespace sluice::nvme {

class Sums {
 public:
  static constexpr Bytes kUnit = kSummed;

  /// The bytes from `begin` on are a record now, instead of the records that it meets.
  void note(Bytes begin, std::span<const std::byte> written);

  /// The first unit that is not what was written. What no record has is not looked at, nor a unit
  /// that is not whole in `read`: who reads whole records has every byte checked.
  std::optional<Extent> differs(Bytes begin, std::span<const std::byte> read) const;

 private:
  struct Record {
    Bytes bytes = 0;
    std::vector<std::uint64_t> units;
  };
  struct Unit {
    Extent at;
    std::uint64_t sum;
  };
  std::vector<Unit> units_within(const Extent& range) const;

  mutable std::mutex mutex_;
  std::map<Bytes, Record> records_;  // by their first byte; they do not overlap
};

/// XXH3 of 64 bits.
std::uint64_t sum_of(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace sluice::nvme
