#include "nvme/sums.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice::nvme {
namespace {

std::span<const std::byte> unit_of(std::span<const std::byte> bytes, Bytes offset) {
  return bytes.subspan(offset, std::min(Sums::kUnit, bytes.size() - offset));
}

}  // namespace

std::uint64_t sum_of(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

void Sums::note(Bytes begin, std::span<const std::byte> written) {
  Record record{written.size(), {}};
  for (Bytes at = 0; at < written.size(); at += kUnit) {
    record.units.push_back(sum_of(unit_of(written, at)));
  }
  const Bytes end = begin + written.size();
  const std::lock_guard lock(mutex_);
  auto old = records_.lower_bound(begin);
  if (old != records_.begin()) {
    const auto before = std::prev(old);
    if (before->first + before->second.bytes > begin) old = before;
  }
  while (old != records_.end() && old->first < end) old = records_.erase(old);
  if (!written.empty()) records_.emplace(begin, std::move(record));
}

std::vector<Sums::Unit> Sums::units_within(const Extent& range) const {
  std::vector<Unit> units;
  const std::lock_guard lock(mutex_);
  auto record = records_.upper_bound(range.begin);
  if (record != records_.begin()) --record;
  for (; record != records_.end() && record->first < range.begin + range.bytes; ++record) {
    const auto& [begin, known] = *record;
    for (std::size_t i = 0; i < known.units.size(); ++i) {
      const Extent at{begin + i * kUnit, std::min(kUnit, known.bytes - i * kUnit)};
      const bool within =
          at.begin >= range.begin && at.begin + at.bytes <= range.begin + range.bytes;
      if (within) units.push_back({at, known.units[i]});
    }
  }
  return units;
}

std::optional<Extent> Sums::differs(Bytes begin, std::span<const std::byte> read) const {
  for (const Unit& unit : units_within({begin, read.size()})) {
    const auto bytes = read.subspan(unit.at.begin - begin, unit.at.bytes);
    if (sum_of(bytes) != unit.sum) return unit.at;
  }
  return std::nullopt;
}

}  // namespace sluice::nvme
