/// One target through a whole sweep: what was measured there, and that its data was right.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/bench/context.h"
#include "engine/bench/drive_bench.h"
#include "engine/bench/point.h"
#include "engine/bench/progress.h"
#include "engine/bench/target.h"

namespace sluice::bench {

inline constexpr Bytes kLeastRequest = 64_KiB;
/// A file has room for so many requests, so that two directions find some each.
inline constexpr Bytes kLeastRequests = 16;
inline constexpr Bytes kLeastFile = kLeastRequests * kLeastRequest;

struct RunOptions {
  double seconds = 300;      ///< about, without steady
  Bytes file = 0;            ///< bytes of the target; less on a slow one
  Bytes most_written = 0;    ///< in all
  bool read_only = false;    ///< only what there must be to read is written
  Bytes steady_written = 0;  ///< by writing until flat; 0: not done
  Bytes steady_file = 0;     ///< in a file of so many bytes
  std::uint64_t seed = 0;
};

struct DriveResult {
  std::string name;  ///< the folders
  Means means;
  std::vector<Measured> measured;
  std::vector<Summary> summaries;
  std::optional<Summary> winner;
  std::optional<Steady> steady;
  Bytes written = 0, verified = 0;
  bool whole = false;  ///< measured and verified to the end
};

/// Makes the target, given its bytes.
using MakeTarget = std::function<std::unique_ptr<Target>(Bytes)>;

/// `begun` gets the result as soon as it says how much will be written, before the sweep. A signal
/// in `stop` ends it: then the result is what there is so far.
///
/// Throws  as DriveBench and Sweep; kConfig when there was no time to measure anything
DriveResult run_drive(const std::string& name, Means means, const MakeTarget& make_target,
                      const RunOptions& options, Progress& progress, const std::atomic<int>& stop,
                      const std::function<void(const DriveResult&)>& begun);

}  // namespace sluice::bench
