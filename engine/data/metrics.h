/// What every step measured, for programs: metrics.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/data/descriptor.h"
#include "engine/data/lane_share.h"

namespace sluice::data {

/// A class of bytes in a tier.
struct MemoryUse {
  std::string tier, name;
  Bytes reserved = 0;
  Bytes peak = 0;  ///< the most in use
};

/// What the simulator expected of a step.
struct Forecast {
  double seconds = 0;
  std::vector<LaneShare> lanes;  ///< of `seconds`, busy alone
};

/// What one step measured.
struct StepRecord {
  std::int64_t step = 0;                ///< steps done, this one included
  std::int64_t steps = 0;               ///< of the whole run; 0 = not known
  double loss = 0;                      ///< nats per target token
  double gnorm = 0;                     ///< before clipping
  std::optional<double> largest_gnorm;  ///< of the segments, where each is clipped by its own
  double lr = 0;
  double seconds = 0;        ///< between the last ops of this step and of the one before
  double mean_seconds = 0;   ///< smoothed, for the eta: MeanSeconds; 0 = not known
  std::int64_t tokens = 0;   ///< places of this step's samples, padding too
  std::int64_t targets = 0;  ///< of them, those whose target counts
  double clip = 1;           ///< the factor on the gradient; the smallest of the segments'
  std::optional<std::int64_t> loss_scale;  ///< of fp16
  bool skipped = false;                    ///< the update was not applied
  bool delayed = false;       ///< it is one step late: the next one's losses do not know it
  double flops = 0;           ///< that the model needs for a step, whatever is run again
  std::optional<double> mfu;  ///< of the device's peak, 0 to 1
  std::string bound;          ///< the busiest lane; may be empty
  double bound_share = 0;     ///< of the step, 0 to 1
  std::vector<LaneShare> lanes;
  std::optional<Forecast> forecast;  ///< of a step like this one, before the run
  std::optional<double> valid_loss;
  Bytes cpu_bytes = 0;
  Bytes cpu_limit = 0;  ///< 0 = no limit
  Bytes gpu_bytes = 0;
  Bytes h2d_bytes = 0;  ///< of weights, gradients, activations, batches and results
  Bytes d2h_bytes = 0;
  Bytes nvme_read_bytes = 0;
  Bytes nvme_write_bytes = 0;
  Bytes nvme_write_total = 0;  ///< since the run began: what drives wear by
  // At the last step of the run only:
  std::vector<MemoryUse> memory;
  Bytes resident_peak = 0;  ///< of the process, as the system counts it; 0 = not known
  std::string nvme;         ///< how the nvme tier was reached, for people; empty without one
};

/// One line of JSON, without its line break. What is not finite is null: JSON has no NaN.
std::string to_json(const StepRecord& record);

/// metrics.jsonl of a run: one object per line, each in the hands of the system when `append`
/// returns.
///
/// Owns    the open file
/// Thread  one at a time
/// Throws  kIo naming the file
class MetricsFile {
 public:
  /// Makes the file, or goes on in it after step `done` (0 = from the start): lines of later steps,
  /// which the resumed run will write again, are cut off, and so is a last line that a crash tore.
  /// Throws kFormat for a line that is no record, and then leaves the file as it is.
  MetricsFile(const std::string& path, std::int64_t done);

  /// Of the lines that are there; 0 = none.
  std::int64_t last_step() const { return last_step_; }
  /// What was appended survives a power loss.
  void sync() const { file_.sync(); }
  /// Either the whole line is there afterwards, or (kIo) none of it.
  void append(const StepRecord& record);

 private:
  Descriptor file_;
  std::uint64_t bytes_ = 0;
  std::int64_t last_step_ = 0;
};

/// The mean of recent step times: each step weighs 0.9 of the one after it.
class MeanSeconds {
 public:
  void add(double seconds);
  /// 0 before the first step.
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace sluice::data
