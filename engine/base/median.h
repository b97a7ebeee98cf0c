/// What is reported of several measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace sluice {

/// The mean of the two in the middle when there is an even number of values; there must be one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace sluice
