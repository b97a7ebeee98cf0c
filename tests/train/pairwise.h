/// Few rows that show every two values of every two axes together.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace sluice::train {

/// A value of an axis, both by number.
struct Choice {
  std::size_t axis;
  std::size_t value;
  auto operator<=>(const Choice&) const = default;
};

/// By axis, the number of its value.
using Row = std::vector<std::size_t>;

/// Can the two stand in one row? Asked both ways round, and of different axes.
using Fits = std::function<bool(const Choice&, const Choice&)>;

/// Rows of which each holds only choices that fit each other, and in which any two choices that fit
/// meet somewhere - but for two that fit each other and no value of some third axis. `values`: how
/// many each axis has. The same rows in every call; not the fewest, but near it.
std::vector<Row> pairwise_cover(const std::vector<std::size_t>& values, const Fits& fits);

}  // namespace sluice::train
