/// What is measured of memory, and what came out of it.
#pragma once

#include <cstdint>
#include <string>

#include "cpu_adam/options.h"
#include "engine/base/units.h"

namespace sluice::bench {

/// One way to do one work over and over on the same bytes.
struct MemoryPoint {
  std::string work;  ///< "update", "norm", "copy"
  std::string by;    ///< an instruction set, a lane, "loop"
  cpu_adam::Stores stores = cpu_adam::Stores::kCached;
  unsigned threads = 1;
  std::string size;              ///< for people: "100M", "32MiB"
  std::uint64_t parameters = 0;  ///< 0: the work has none
  Bytes moved = 0;  ///< by one pass: read and written in memory, or once over the link of a device
  /// The same bytes with hardly any arithmetic: what the others of this work, size and number of
  /// threads could reach.
  bool roof = false;
  bool operator==(const MemoryPoint&) const = default;
};

/// Some passes, one after the other.
struct MemoryRun {
  MemoryPoint point;
  int repetition = 0;
  double seconds = 0;      ///< of one pass
  double cpu_seconds = 0;  ///< of processors, user and system, of one pass
};

/// All runs of one point together.
struct MemorySummary {
  MemoryPoint point;
  int repetitions = 0;
  double seconds = 0;       ///< median
  double spread = 0;        ///< (slowest - fastest) / median
  double roof_seconds = 0;  ///< of the fastest roof; 0: none was measured
  double rate() const { return static_cast<double>(point.moved) / seconds; }
  double of_roof() const { return roof_seconds / seconds; }
};

}  // namespace sluice::bench
