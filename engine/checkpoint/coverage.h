/// Which elements of a range were written: each may be, once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace sluice::checkpoint {

class Coverage {
 public:
  /// Adds [first, first + count). False, and nothing added, when a part of it is there already.
  [[nodiscard]] bool add(std::uint64_t first, std::uint64_t count);
  /// The first element of [first, end) that is missing.
  std::optional<std::uint64_t> first_missing(std::uint64_t first, std::uint64_t end) const;

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // first -> end; apart from each other
};

}  // namespace sluice::checkpoint
