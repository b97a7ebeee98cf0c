/// For how long to train, and with which numbers.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "engine/base/units.h"
#include "engine/data/options.h"
#include "engine/schedule/options.h"

namespace sluice::train {

enum class Execution : std::uint8_t {
  kOverlapped,
  kSerial  ///< op by op, same bits: for debugging
};

enum class OnNonFinite : std::uint8_t { kSkip, kStop };

/// Which gradients one norm is of, and one factor for.
enum class ClipScope : std::uint8_t {
  kGlobal,  ///< all
  kSegment  ///< those of a segment: the embedding, a layer, the last norm, the head
};

struct TrainOptions {
  /// At most one of the three; none = one epoch. `steps` may be 0: only the initial weights are
  /// written.
  std::optional<std::int64_t> steps, epochs, tokens;
  /// Any two of the three decide the third; nullopt = auto (micro-batch 1, accumulation 1).
  std::optional<std::int64_t> train_micro_batch_size_per_gpu, gradient_accumulation_steps,
      train_batch_size;
  std::optional<double> gradient_clipping = 1.0;  ///< nullopt = off
  ClipScope clip_scope = ClipScope::kGlobal;
  OnNonFinite on_nonfinite = OnNonFinite::kSkip;
  std::int64_t max_skips = 10;  ///< this many skipped steps in a row end the run
};

struct EvalOptions {
  std::int64_t every = 200;   ///< steps; 0 = only at the end
  std::int64_t batches = 50;  ///< micro-batches per evaluation
  bool drain = false;  ///< a gradient that waits is applied before; the next step's waits anew
};

inline constexpr std::int64_t kMostLossScale = std::int64_t{1} << 32;

/// What the loss is multiplied by on its way back, so that fp16 can hold its gradients. Powers of
/// two.
struct LossScaleOptions {
  std::optional<std::int64_t> fixed = 1;  ///< nullopt = tried, as follows
  int initial_power = 16;                 ///< of two: what is tried first
  std::int64_t window = 1000;             ///< applied steps until the double is tried
  std::int64_t least = 1;
};

enum class OptimizerType : std::uint8_t { kAdamW, kAdam };

struct OptimizerOptions {
  OptimizerType type = OptimizerType::kAdamW;
  std::optional<schedule::Update> update;  ///< nullopt = auto: the plan chooses
  /// Steps before the first whose update is delayed, where they are.
  data::StepsOrShare delayed_update_start = std::int64_t{40};
  double lr = 3e-4;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< on tensors of two or more dimensions
};

/// What asks for every gradient of a step before its first update.
enum class NeedsAll : std::uint8_t { kNothing, kOneNorm, kSkippedSteps, kLossScale };
inline NeedsAll needs_all_gradients(const TrainOptions& train, const LossScaleOptions& scale) {
  if (train.gradient_clipping && train.clip_scope == ClipScope::kGlobal) return NeedsAll::kOneNorm;
  if (train.on_nonfinite == OnNonFinite::kSkip) return NeedsAll::kSkippedSteps;
  return scale.fixed ? NeedsAll::kNothing : NeedsAll::kLossScale;
}

struct LimitOptions {
  std::optional<Bytes> max_write_total;  ///< to the nvme tier, by the run; nullopt = no limit
};

struct SaveOptions {
  /// Between checkpoints; nullopt = none but those asked for.
  std::optional<std::variant<std::int64_t, std::chrono::milliseconds>> every = std::int64_t{500};
  std::int64_t keep = 3;                     ///< the newest so many
  std::optional<std::int64_t> keep_every;    ///< and those of whole multiples of so many steps
  bool save_on_signal = true;                ///< before a signal ends the run
  bool verify = true;                        ///< sums are checked when a run goes on from one
  std::string trigger_file = "sluice.save";  ///< in the run's folder: once there, save
};

struct WatchdogOptions {
  /// An op that runs for longer ends the run; nullopt = auto, see Patience.
  std::optional<std::chrono::milliseconds> step;
};

/// Steps of a run, counted from 1, both ends included.
struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

struct ProfileOptions {
  std::optional<StepRange> steps;  ///< of which a Chrome trace is written; nullopt = none
};

}  // namespace sluice::train
