/// A run as data: everything that `train` needs, already read and checked, no YAML in sight.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cpu_adam/options.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/report.h"
#include "engine/base/units.h"
#include "engine/checkpoint/companions.h"
#include "engine/checkpoint/manifest.h"
#include "engine/data/metrics.h"
#include "engine/data/options.h"
#include "engine/executor/driver.h"
#include "engine/memory/options.h"
#include "engine/memory/slot_memory.h"
#include "engine/plan/rates.h"
#include "engine/schedule/setup.h"
#include "engine/shape/decoder.h"
#include "engine/train/compute.h"
#include "engine/train/options.h"
#include "nvme/io_queue.h"
#include "nvme/options.h"

namespace sluice::train {

/// Seams for tests and benches: faults, delays, a look at the bytes and at every op.
struct Hooks {
  /// Stands between the driver and the conductor.
  std::function<std::unique_ptr<executor::Handler>(executor::Handler&, const memory::SlotMemory&)>
      wrap_handler;
  /// Stands between the store and its queue.
  nvme::WrapQueue wrap_queue;
  /// May change what the tiers are planned for, once what libraries took of the device is off.
  std::function<void(prefetch::BytesByTier&)> limits;
  /// Takes the spans of all ops instead of the run's own ring, which holds the last steps only.
  Trace* trace = nullptr;
};

struct Job {
  shape::Decoder decoder;
  std::string weights;  ///< a file or folder of safetensors; empty: drawn from the seed
  checkpoint::Companions companions;  ///< of the weights in final/
  std::uint64_t seed = 1337;
  data::DataOptions data;
  TrainOptions train;
  EvalOptions eval;
  LimitOptions limits;
  WatchdogOptions watchdog;
  ProfileOptions profile;
  OptimizerOptions optimizer;
  data::SchedulerOptions scheduler;
  schedule::Options homes;
  schedule::GradDType grad_dtype = schedule::GradDType::kAuto;
  DType compute = DType::kBf16;
  LossScaleOptions loss_scale;
  DType final_dtype = DType::kBf16;
  Bytes shard_size = 5_GiB;                 ///< most of one file in final/
  bool tf32 = false;                        ///< with a compute of kF32
  std::optional<unsigned> compute_threads;  ///< nullopt = auto: the cores
  std::optional<std::int64_t> loss_chunk;   ///< nullopt = auto
  std::optional<std::int64_t> mlp_chunk;    ///< nullopt = auto
  Execution execution = Execution::kOverlapped;
  memory::Options tiers;
  nvme::Options aio;
  cpu_adam::Options cpu_adam;
  bool saves = true;  ///< false: only for Session::evaluate(), which writes no weights
  SaveOptions checkpoint;
  std::string resume;  ///< the checkpoint that the run goes on from; empty: its first weights
  std::set<std::string> damaged;  ///< names of checkpoints in the folder that are no good
  checkpoint::Settings settings;  ///< for manifests
  std::string version;            ///< of sluice, likewise
  std::string folder;  ///< of the run: `final/`, `checkpoints/`, `nvme/` without tiers.nvme.paths
  std::function<void(const data::StepRecord&)> on_step;  ///< in order, on the caller's thread
  /// Above 0 (a signal's number): no more steps are begun, and the run ends without final weights
  /// when those under way have; with `checkpoint.save_on_signal` they are saved. Null = nobody
  /// asks.
  const std::atomic<int>* stop = nullptr;
  /// Asked between steps whether somebody wants a checkpoint now. May be empty.
  std::function<bool()> wants_checkpoint;
  /// A checkpoint is whole and about to get its name: what was told of steps before it is made
  /// durable here. May be empty.
  std::function<void()> before_checkpoint;
  std::function<void(const std::string&)> on_checkpoint;  ///< one has its name; may be empty
  /// An op has run for longer than `watchdog` allows, and nobody can unwind it: does not return but
  /// in tests. Called once, on the watchdog's thread, when everything is in the log.
  std::function<void(const Error&)> on_hang = end_process;
  /// What the machine does per second, for the plan; nullopt: it is looked at, and ops are timed.
  std::optional<plan::Rates> rates;
  MakeCompute make_compute;  ///< the model's functions: engine/compute has them on LibTorch
  Hooks hooks;
};

}  // namespace sluice::train
