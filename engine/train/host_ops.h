/// What only the host computes: batches, first values, sums of states, what a step decides.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/data/options.h"
#include "engine/schedule/setup.h"
#include "engine/train/batches.h"
#include "engine/train/first_values.h"
#include "engine/train/op_bytes.h"
#include "engine/train/options.h"
#include "engine/train/record.h"

namespace sluice::train {

/// What a step gave its user.
struct StepResult {
  double loss = 0;           ///< mean nats per target token
  double gnorm = 0;          ///< before clipping
  double largest_gnorm = 0;  ///< of the segments
  double lr = 0;
  double clip = 1;  ///< the smallest, where each segment has one
  std::int64_t loss_scale = 1;
  bool skipped = false;
  std::int64_t targets = 0;  ///< of all its micro-batches
};

/// How the numbers of a step are decided.
struct Rules {
  OptimizerOptions optimizer;
  data::SchedulerOptions scheduler;
  TrainOptions train;
  LossScaleOptions loss_scale;
  std::int64_t steps = 0;  ///< of the whole run
  Control begin{};         ///< the counters that it begins with
};

/// Has work done by the threads of an optimizer, grains to each; it must outlive this.
checkpoint::Each threads_of(const cpu_adam::Optimizer& optimizer);

/// Thread  run(): any lane, several at once on different ops; the rest: any
class HostOps {
 public:
  /// What it refers to must outlive this.
  HostOps(const schedule::Setup& setup, const Rules& rules,
          std::unique_ptr<const FirstValues> first_values, const Batches& batches,
          const cpu_adam::Optimizer& optimizer)
      : setup_(setup),
        rules_(rules),
        first_values_(std::move(first_values)),
        batches_(batches),
        optimizer_(optimizer) {}

  void run(const OpBytes& op);

  /// Has the bytes come that a chunk's first values are made of, or a gradient that waits.
  Ticket read_first_values(const OpBytes& op) const;
  /// The first values are there: closes what they came from.
  void begun() { first_values_.reset(); }

  /// The result of a step or of an evaluation that has run; handed out once.
  StepResult take_step(std::int64_t step);
  double take_evaluation(std::int64_t step);

 private:
  void load_batch(const OpBytes& op) const;
  void init_state(const OpBytes& op) const;
  void init_record(const OpBytes& op) const;
  void init_gradient(const OpBytes& op) const;
  void sum_state(const OpBytes& op) const;
  void sum_gradient(const OpBytes& op) const;
  void join_state(const OpBytes& op) const;
  void split_state(const OpBytes& op) const;
  void adopt_weights(const OpBytes& op) const;
  void begin_update(const OpBytes& op) const;
  void decide(const OpBytes& op);
  void decide_segment(const OpBytes& op) const;
  void end_update(const OpBytes& op);
  /// Of the losses and norms of all the step.
  StepResult sum_up(const OpBytes& op, const Control& control) const;
  void count(Control& control, const StepResult& result, std::int64_t step);
  /// The update after these counters, if it is applied, but for clipping.
  Record next_record(const Control& control, std::int64_t step) const;
  double clip_factor(double norm) const;
  /// The tensors of a segment that share its first grain whose sum is not finite.
  std::string tensors_of_bad(std::int32_t segment, std::span<const double> sums) const;
  /// Counts a step that is skipped; throws kNonFinite where that ends the run.
  void skip(Control& control, std::int64_t step, double loss, double gnorm) const;
  void report_loss(const OpBytes& op);
  /// Of the program whose micro-batches the op has the losses of, per target.
  double mean_loss(const OpBytes& op, Tag tag) const;

  const zero::Chunk& chunk(const prefetch::Where& where) const;

  const schedule::Setup& setup_;
  const Rules& rules_;
  std::unique_ptr<const FirstValues> first_values_;  // until begun()
  const Batches& batches_;
  const cpu_adam::Optimizer& optimizer_;
  std::mutex mutex_;  // guards the results
  std::map<std::int64_t, StepResult> steps_;
  std::map<std::int64_t, double> evaluations_;
};

}  // namespace sluice::train
