/// Who holds how many bytes of which tier: every pool is entered here, and nothing beyond a limit;
/// and how many of them were ever in use.
///
/// Thread  one; read from any once the run's memory is committed
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "prefetch/residents.h"

namespace sluice::memory {

class Ledger {
 public:
  /// Limits by tier, in bytes.
  explicit Ledger(const prefetch::BytesByTier& limits) : limits_(limits) {}

  /// Throws kBudget, with the tier, the class, asked and free, when the tier's limit would be
  /// exceeded.
  void reserve(prefetch::Tier tier, prefetch::MemoryTag tag, Bytes bytes);

  Bytes used(prefetch::Tier tier) const;
  Bytes used(prefetch::Tier tier, prefetch::MemoryTag tag) const;
  Bytes limit(prefetch::Tier tier) const { return limits_[index(tier)]; }
  /// One line per tier: "cpu  49.0 GiB of 64.0 GiB: parameters 15.0 GiB, optimizer state 34.0 GiB".
  std::string table() const;

  /// The high-water marks: per pool its class, and the most slots that were in use at once. What
  /// pools of one class had at different times is added up.
  void set_peaks(const prefetch::Pools& pools, const std::vector<prefetch::MemoryTag>& tags,
                 const std::vector<std::uint32_t>& slots);
  /// Of a class that is one slot, and knows how much of it was in use.
  void set_peak(prefetch::Tier tier, prefetch::MemoryTag tag, Bytes bytes);

  struct Entry {
    prefetch::Tier tier;
    prefetch::MemoryTag tag;
    Bytes reserved, peak;
  };
  /// Every class that holds bytes, by tier.
  std::vector<Entry> entries() const;
  /// A line per entry: tier, class, reserved, most in use.
  std::string peak_table() const;

 private:
  using BytesByTag = std::array<Bytes, prefetch::kMemoryTags>;

  prefetch::BytesByTier limits_;
  std::array<BytesByTag, prefetch::kTiers.size()> peaks_{};
  std::array<BytesByTag, prefetch::kTiers.size()> used_{};
};

}  // namespace sluice::memory
