/// Ours beside fio's: two programs that did the same job in turn, several times.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "engine/bench/point.h"

namespace sluice::bench {

/// Run one right after the other, so that what the drive does meanwhile meets both.
struct Pair {
  Measured ours, fio;
};

/// Of one traffic. Rates are those of both directions together.
struct Comparison {
  Traffic traffic = Traffic::kRead;
  std::size_t pairs = 0;
  double ours = 0, fio = 0;                   ///< medians of the rates
  double ratio = 0, lowest = 0, highest = 0;  ///< ours / fio of single pairs: median, ends
  double ours_cpu = 0, fio_cpu = 0;           ///< medians, seconds of processors per 10^9 bytes
};

/// Throws  kLogic when there is no pair, pairs differ in their traffic, or fio's rate is 0
Comparison compare(std::span<const Pair> pairs);

/// "mixed: 1.52 of fio's 1.55 GB/s: 0.98 (median of 5 pairs, 0.94 to 1.01)".
std::string line_of(const Comparison& comparison);

}  // namespace sluice::bench
