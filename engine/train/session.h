/// One run, from its options to its final weights.
///
/// The constructor does what can fail without the run's memory and files: data, workspace, plan, a
/// look at the disks. run() takes both before step 1, then it is the stream of programs.
///
/// One at a time in a process: LibTorch's one allocator serves ops from its workspace.
/// Thread  one; it starts and joins all others
/// Throws  kConfig, kBudget, kIo, kFormat, kCheckpoint, kNonFinite; nothing is half-written then
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/data/dataset.h"
#include "engine/plan/plan.h"
#include "engine/train/compute.h"
#include "engine/train/first_values.h"
#include "engine/train/job.h"
#include "gpu/stream.h"

namespace sluice::train {

enum class Outcome : std::uint8_t {
  kDone,
  kSaved,   ///< stopped by Job::stop before the last step: a checkpoint has all that was done
  kStopped  ///< likewise, and no checkpoint has it
};

/// What a run begins with, as far as looking tells: nothing is measured, taken or made.
struct Inputs {
  data::Dataset train;
  std::optional<data::Dataset> valid;
  std::int64_t steps = 0;
  schedule::Setup setup;
  std::unique_ptr<FirstValues> first_values;  ///< of weights, the headers are read
  checkpoint::Position position;              ///< of what the run goes on from
};
/// Throws what Session's constructor throws before it measures.
Inputs read_inputs(const Job& job);

class Session {
 public:
  explicit Session(const Job& job) : Session(job, read_inputs(job)) {}
  ~Session();

  /// The plan, what it rests on and what others there are, for people. Takes as long as planning.
  std::string report() const;
  const plan::Plan& plan() const { return plan_; }
  const prefetch::CostModel& cost() const { return cost_; }  ///< planned with
  std::int64_t steps() const { return steps_; }
  /// Where the run begins.
  const checkpoint::Position& position() const { return position_; }
  /// Of the job, and what they came to.
  const checkpoint::Settings& settings() const { return job_.settings; }
  /// What `auto` came to; part of the run's numbers, so it is recorded.
  const Numerics& numerics() const { return numerics_; }
  const data::Dataset& train_data() const { return train_; }
  const data::Dataset* valid_data() const { return valid_ ? &*valid_ : nullptr; }
  /// Samples of one evaluation.
  std::int64_t evaluation_samples() const;

  /// The mean loss over the validation data (evaluation_samples() of it) with the first weights, in
  /// nats per target. Allocates the tiers; writes nothing but the nvme tier. Once, instead of
  /// run().
  double evaluate();
  /// Allocates the tiers, trains, and writes `final/` unless it was asked to stop. Once.
  Outcome run();

 private:
  struct Assembly;
  class Loop;
  Session(const Job& job, Inputs inputs);
  bool runs_serially() const { return job_.execution == Execution::kSerial; }
  std::int64_t evaluation_batches() const;
  std::int64_t last_step() const;
  void choose_verify(const plan::Rates& rates);

  Job job_;
  data::Dataset train_;
  std::optional<data::Dataset> valid_;
  std::int64_t steps_ = 0;
  checkpoint::Position position_;
  std::int64_t delayed_start_ = 0;  ///< the first step whose update is late, where they are
  Numerics numerics_;
  schedule::Setup asked_, setup_;  ///< before and after planning
  prefetch::CostModel cost_;
  gpu::Stream stream_;  // of compute
  std::unique_ptr<FirstValues> first_values_;
  std::unique_ptr<Compute> compute_;
  WorkspaceUse workspace_;            // what a run sets aside
  std::string checks_;                ///< what they cost, for people; empty without drives
  std::vector<double> drive_speeds_;  ///< of the nvme paths; empty: not measured
  plan::Plan plan_;
};

}  // namespace sluice::train
