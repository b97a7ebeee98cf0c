/// A short look at the machine before the plan: copies, Adam, sums, drives. What it finds chooses
/// sizes, never bits.
///
/// Thread  one, before the run; some 0.2 s, half a second to four more for each drive, and some
///         100 MiB for that long
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "cpu_adam/options.h"
#include "engine/memory/options.h"
#include "engine/plan/rates.h"
#include "engine/schedule/setup.h"
#include "engine/train/compute.h"
#include "nvme/options.h"
#include "nvme/speed.h"

namespace sluice::train {

/// Of kUpdated elements, in seconds.
struct ArithmeticTimings {
  double update = 0, sum = 0;
};

/// What the look took, in seconds, or found.
struct Timings {
  double copy = 0;  ///< of kCopied bytes to the device; 0: not looked at
  ArithmeticTimings host;
  std::optional<ArithmeticTimings> device = {};  ///< where it has any to do
  std::optional<nvme::Speed> drives = {};        ///< bytes per second of all together
};
inline constexpr Bytes kCopied = 16_MiB;
inline constexpr std::size_t kUpdated = 1 << 20;

/// The rates that follow, for an optimizer that works here or there. What was not looked at keeps
/// its default.
plan::Rates rates_of(const Timings& timings, bool updates_on_device);

struct Calibration {
  plan::Rates rates;
  std::vector<double> speeds;  ///< of the nvme paths, beside each other; empty: not measured
};

/// `ops` are the compute lane's, as Compute::measure() found them. The drives are looked at only
/// when the setup has a home there (nvme/speed.h). Those that cannot be measured get a guess and a
/// warning.
Calibration calibrate(const schedule::Setup& setup, const Numerics& numerics,
                      const std::map<schedule::OpId, double>& ops,
                      const cpu_adam::Options& cpu_adam, const memory::NvmeTier& nvme,
                      const nvme::Options& aio);

}  // namespace sluice::train
