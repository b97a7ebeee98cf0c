#include "engine/checkpoint/coverage.h"

#include <iterator>

namespace sluice::checkpoint {

bool Coverage::add(std::uint64_t first, std::uint64_t count) {
  if (count == 0) return true;
  std::uint64_t end = first + count;
  auto after = ranges_.lower_bound(first);
  if (after != ranges_.end() && after->first < end) return false;
  if (after != ranges_.begin() && std::prev(after)->second > first) return false;

  if (after != ranges_.end() && after->first == end) {
    end = after->second;
    after = ranges_.erase(after);
  }
  if (after != ranges_.begin() && std::prev(after)->second == first) {
    std::prev(after)->second = end;
  } else {
    ranges_.emplace_hint(after, first, end);
  }
  return true;
}

std::optional<std::uint64_t> Coverage::first_missing(std::uint64_t first, std::uint64_t end) const {
  if (first >= end) return std::nullopt;
  const auto after = ranges_.upper_bound(first);
  if (after == ranges_.begin()) return first;
  const std::uint64_t covered = std::prev(after)->second;
  if (covered >= end) return std::nullopt;
  return covered > first ? covered : first;
}

}  // namespace sluice::checkpoint
