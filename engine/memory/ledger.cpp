#include "engine/memory/ledger.h"

#include <fmt/format.h>

#include <numeric>

#include "engine/base/error.h"

namespace sluice::memory {

using prefetch::MemoryTag;
using prefetch::Tier;

void Ledger::reserve(Tier tier, MemoryTag tag, Bytes bytes) {
  const Bytes free = limit(tier) - used(tier);
  SLUICE_CHECK(bytes <= free, kBudget,
               fmt::format("{} tier: asked {} for {}, {} free of {}; raise tiers.{}.limit or move "
                           "this class of bytes to another tier",
                           name_of(tier), format_bytes(bytes), name_of(tag), format_bytes(free),
                           format_bytes(limit(tier)), name_of(tier)));
  used_[index(tier)][static_cast<std::size_t>(tag)] += bytes;
}

Bytes Ledger::used(Tier tier, MemoryTag tag) const {
  return used_[index(tier)][static_cast<std::size_t>(tag)];
}

Bytes Ledger::used(Tier tier) const {
  const auto& row = used_[index(tier)];
  return std::accumulate(row.begin(), row.end(), Bytes{0});
}

void Ledger::set_peaks(const prefetch::Pools& pools, const std::vector<MemoryTag>& tags,
                       const std::vector<std::uint32_t>& slots) {
  peaks_ = {};
  for (std::size_t i = 0; i < pools.size(); ++i) {
    peaks_[index(pools[i].tier)][static_cast<std::size_t>(tags[i])] += pools[i].slot * slots[i];
  }
}

void Ledger::set_peak(Tier tier, MemoryTag tag, Bytes bytes) {
  peaks_[index(tier)][static_cast<std::size_t>(tag)] = bytes;
}

std::vector<Ledger::Entry> Ledger::entries() const {
  std::vector<Entry> entries;
  for (const Tier tier : prefetch::kTiers) {
    for (std::size_t i = 0; i < prefetch::kMemoryTags; ++i) {
      const auto tag = static_cast<MemoryTag>(i);
      if (used(tier, tag) == 0) continue;
      entries.push_back({tier, tag, used(tier, tag), peaks_[index(tier)][i]});
    }
  }
  return entries;
}

std::string Ledger::peak_table() const {
  std::string text = fmt::format("{:<22}{:>12}{:>14}", "memory", "reserved", "most in use");
  for (const Entry& entry : entries()) {
    text += fmt::format("\n{:<5}{:<17}{:>12}{:>14}", name_of(entry.tier), name_of(entry.tag),
                        format_bytes(entry.reserved), format_bytes(entry.peak));
  }
  return text;
}

std::string Ledger::table() const {
  std::string text;
  for (const Tier tier : prefetch::kTiers) {
    if (used(tier) == 0) continue;
    text += fmt::format("{}{:<4} {} of {}:", text.empty() ? "" : "\n", name_of(tier),
                        format_bytes(used(tier)), format_bytes(limit(tier)));
    const char* comma = " ";
    for (std::size_t tag = 0; tag < prefetch::kMemoryTags; ++tag) {
      const Bytes bytes = used(tier, static_cast<MemoryTag>(tag));
      if (bytes == 0) continue;
      text +=
          fmt::format("{}{} {}", comma, name_of(static_cast<MemoryTag>(tag)), format_bytes(bytes));
      comma = ", ";
    }
  }
  return text;
}

}  // namespace sluice::memory
