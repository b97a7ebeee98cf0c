/// A short look at the machine before the plan: copies, Adam, sums, memory, drives. What it finds
/// chooses sizes, never bits.
///
/// All of it works on more memory than caches hold, if the run and its host memory do, as far as
/// 2 GiB are more; sums
/// and norms, of less, behind a walk over a quarter of that. Values are of the run's types.
/// What does not agree is tried again, but a layer beside an update, which has two rounds or three;
/// of what processors do each time is as it is where their quota is used up (timing.h).
///
/// Thread  one, before the run, which starts others: an update beside a layer, reads beside writes,
///         and a layer beside both, or an update where no layer is the host's or one is too long
///         for that (kLongestBeside). A second or two where cores move 20 GB/s and have 32 MiB of
///         cache, three times that on a busy machine; up to three times a layer, of short ones half
///         a second; one to six more for each drive, up to three times that where it does not hold
///         still. For that long three quarters of the host memory that the run may take, 2.5 GiB
///         at most (of eight times the last cache, or what the run has), and what one layer's op
///         and the drives' buffers need; before that what the optimizer's look at stores takes
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cpu_adam/options.h"
#include "engine/memory/options.h"
#include "engine/plan/rates.h"
#include "engine/schedule/setup.h"
#include "engine/train/compute.h"
#include "engine/train/timing.h"
#include "gpu/stream.h"
#include "nvme/options.h"
#include "nvme/speed.h"

namespace sluice::train {

/// In seconds.
struct ArithmeticTimings {
  double update = 0, sum = 0, norm = 0;
};

/// Of two works that go on at once, as parts of what they are alone.
struct Paces {
  double first = 1, second = 1;
};

/// The same, to the device, to the host, and both at once.
struct CopyTimings {
  double there = 0, back = 0, both = 0;
};

/// What the look took, in seconds, or found.
struct Timings {
  Bytes copied = 0;
  std::optional<CopyTimings> copies = {};  ///< of so many bytes each way
  double check = 0;                        ///< of as many by one thread; 0: not looked at
  std::size_t elems = 0;                   ///< updated, summed, and squared
  /// Each where it has any to do; one of them has.
  std::optional<ArithmeticTimings> host = {}, device = {};
  Bytes touched = 0;
  double touch = 0;                 ///< each of so many bytes read and written; 0: not looked at
  std::optional<Paces> paces = {};  ///< of a layer, and the update beside it
  std::optional<nvme::Speed> drives = {};  ///< bytes per second of all together
  DType gradient = DType::kF32;            ///< of what was updated and squared
};

/// What a run has: state, gradients and weights, wherever they are, and the host memory that its
/// tiers may take.
struct RunBytes {
  Bytes model = 0, memory = 0;
};

/// So much memory is worked on: eight times what caches hold, but no more than the run's model has,
/// or three fifths of its memory (4 MiB where that is less), and an eighth of what can be taken.
/// `last_cache` 0: not known.
Bytes looked_at(Bytes last_cache, const RunBytes& of_run, Bytes available);

/// So much is walked through before an op is timed, so that nothing of it is in a cache: twice what
/// they hold. Where a run has less, most of it stays there between steps too.
Bytes cleared_by(Bytes last_cache, Bytes of_run, Bytes available);

/// What works there, and not on the host.
struct OnDevice {
  bool updates = false;    ///< the optimizer
  bool gradients = false;  ///< who reads the step's gradients for their norms
};

/// The rates that follow. What was not looked at keeps its default.
plan::Rates rates_of(const Timings& timings, const OnDevice& on_device);

/// The type of most elements of the gradient, or of its terms.
DType updates_read(const schedule::Setup& setup);

/// How two works that are at the cores at once get their paces.
struct SharedCores {
  double given = 1;   ///< to both, of what one gets (prefetch::Resource::shared); 1 at most
  double second = 1;  ///< the share that the second uses: less than its threads could
  double weight = 1;  ///< of the second; the first has 1 (prefetch::OpCost)
};
/// Their threads could use such shares. nullopt: they were disturbed.
std::optional<SharedCores> shared_cores(const Paces& paces, double first_share,
                                        double second_share);

/// What lives on drives: state, weights, and the inputs of blocks.
Bytes stored_of(const schedule::Setup& setup);

/// Of the drives of these paths, those whose halves lay apart (nvme/speed.h).
std::vector<Unsteady> unsteady_drives(const std::vector<std::string>& paths,
                                      const std::vector<nvme::Speed>& speeds);

struct Calibration {
  plan::Rates rates;
  std::vector<double> speeds;  ///< of the nvme paths, beside each other; empty: not measured
  std::vector<Unsteady> unsteady = {};  ///< said in the log
  /// The optimizer's, as the one that was looked at chose them: the run's is of the same.
  cpu_adam::Stores stores = cpu_adam::Stores::kAuto;
};

/// `ops` are the compute lane's, as `compute` measured them on this stream. The drives are looked
/// at only when the setup has a home there (nvme/speed.h). Those that cannot be measured get a
/// guess and a warning. `memory`: as RunBytes has it.
Calibration calibrate(const schedule::Setup& setup, const Numerics& numerics, Bytes memory,
                      const Measured& ops, Compute& compute, gpu::Stream& stream,
                      const cpu_adam::Options& cpu_adam, const memory::NvmeTier& nvme,
                      const nvme::Options& aio);

}  // namespace sluice::train
