/// A short look at the machine before the plan: copies, Adam, sums, drives. What it finds chooses
/// sizes, never bits.
///
/// Thread  one, before the run; some 0.2 s, and some 100 MiB for that long
#pragma once

#include <map>

#include "cpu_adam/options.h"
#include "engine/memory/options.h"
#include "engine/plan/rates.h"
#include "engine/schedule/setup.h"
#include "engine/train/compute.h"
#include "nvme/options.h"

namespace sluice::train {

/// `ops` are the compute lane's, as measure_ops() found them. The drives are looked at only when
/// the setup has a home there: a file in the folder, or in its nearest parent that exists, whose
/// name is removed before anything is written. Drives that cannot be measured get a guess and a
/// warning.
plan::Rates calibrate(const schedule::Setup& setup, const Numerics& numerics,
                      const std::map<schedule::OpId, double>& ops,
                      const cpu_adam::Options& cpu_adam, const memory::NvmeTier& nvme,
                      const nvme::Options& aio);

}  // namespace sluice::train
