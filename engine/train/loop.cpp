#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/memory/resident.h"
#include "engine/train/account.h"
#include "engine/train/assembly.h"
#include "engine/train/pace.h"
#include "engine/train/profile.h"
#include "gpu/device.h"

namespace sluice::train {

using prefetch::Tier;

namespace {

constexpr std::size_t kMostInFlight = 2;   // programs
constexpr std::int64_t kUnusualSteps = 2;  // the first ones, left out of the lanes' table

}  // namespace

/// The stream of programs, and what is told about each when it has run.
class Session::Loop {
 public:
  Loop(Session& session, Assembly& assembly) : s_(session), a_(assembly) {
    if (const auto& steps = s_.job_.profile.steps) {
      const auto path = std::filesystem::path(s_.job_.folder) / "trace.json";
      profile_.emplace(*steps, path.string(), s_.plan_.lanes, s_.plan_.catalog.pools);
      if (steps->first > last_step_) {
        log::warning(fmt::format("profile.steps begins with step {}, the run has {}: no trace.json",
                                 steps->first, last_step_));
      }
    }
  }

  Outcome run() {
    if (last_step_ < s_.steps_) {
      log::warning(
          fmt::format("limits.max_write_total: {} are as much as {} of {} steps write to "
                      "the nvme tier; the run ends there, with its weights",
                      format_bytes(*s_.job_.limits.max_write_total), last_step_, s_.steps_));
    }
    append(s_.plan_.programs.init, {Tag::Kind::kInit, done_});
    settle(0);  // the clock of the first step starts when the weights stand
    const bool all = append_steps();
    settle(0);
    if (pending_) report();  // its evaluation was not begun
    say_how_it_went();
    if (const Bytes written = a_.conductor.moved().nvme_written; written > 0) {
      log::info(fmt::format("drives: {} written", format_bytes(written)));
    }
    if (!all) {
      if (profile_) profile_->write();
      return done_ > 0 && saved_ == done_ ? Outcome::kSaved : Outcome::kStopped;
    }
    save();
    return Outcome::kDone;
  }

 private:
  /// False: stopped before the last.
  bool append_steps() {
    for (std::int64_t step = done_; step < last_step_; ++step) {
      if (!append_step(step)) break;
      done_ = step + 1;
      // One that is saved is whole: going on from it does not come back to it.
      if (evaluates(step) && (!stopping() || saves_when_stopped())) {
        if (s_.job_.eval.drain || done_ == last_step_) drain();
        append_between(s_.plan_.programs.evaluation, {Tag::Kind::kEvaluation, step});
      }
      if (checkpoint_due()) checkpoint();
    }
    if (done_ == last_step_) {
      drain();
      return true;
    }
    if (saves_when_stopped() && asked_for_ != done_) checkpoint();
    return false;
  }

  /// False: stopped before it.
  bool append_step(std::int64_t step) {
    const plan::Programs& programs = s_.plan_.programs;
    const bool delayed = s_.setup_.delays() && step >= s_.delayed_start_;
    if (!delayed) drain();  // of a run that went on from a checkpoint of a delayed one
    const auto& none_waits = delayed ? programs.delayed.first_step : programs.delayed.own_step;
    const auto& program = s_.setup_.delays() && !waiting_ ? none_waits : programs.step;
    if (!append(program, {Tag::Kind::kStep, step})) return false;
    begun_[step] = {program, delayed};
    waiting_ = delayed;
    return true;
  }

  /// What the last step left is applied by itself, if it left something.
  void drain() {
    if (!waiting_) return;
    append_between(s_.plan_.programs.delayed.drain, {Tag::Kind::kDrain, done_});
    waiting_ = false;
  }

  bool saves_when_stopped() const { return s_.job_.checkpoint.save_on_signal; }

  bool checkpoint_due() {
    if (s_.job_.wants_checkpoint && s_.job_.wants_checkpoint()) return true;
    const auto& every = s_.job_.checkpoint.every;
    if (!every) return false;
    if (const auto* steps = std::get_if<std::int64_t>(&*every)) return done_ % *steps == 0;
    return now_ns() - asked_at_ >= Nanos{std::chrono::nanoseconds(std::get<1>(*every)).count()};
  }

  /// Of the steps that were begun so far.
  void checkpoint() {
    asked_at_ = now_ns();
    asked_for_ = done_;
    const plan::Programs& programs = s_.plan_.programs;
    const auto kind = waiting_ ? Tag::Kind::kPendingCheckpoint : Tag::Kind::kCheckpoint;
    append_between(waiting_ ? programs.delayed.checkpoint : programs.checkpoint, {kind, done_});
  }

  bool stopping() const { return s_.job_.stop != nullptr && *s_.job_.stop > 0; }

  bool evaluates(std::int64_t step) const {
    if (!s_.plan_.programs.evaluation) return false;
    const std::int64_t every = s_.job_.eval.every;
    return step + 1 == last_step_ || (every > 0 && (step + 1) % every == 0);
  }

  void say_how_it_went() const {
    if (finished_steps_ == 0) return;
    if (finished_steps_ > kUnusualSteps) {
      log::info(fmt::format("lanes: busy | waiting for (shares of the time from step {} on)\n{}",
                            s_.position_.step + kUnusualSteps + 1,
                            data::lane_table(account_.overall(usual_from_, last_.lanes))));
    }
    if (const auto why = pace_.unjudged(s_.plan_.forecast.step_s > 0)) log::info(*why);
  }

  /// For one more program.
  void await_room() { settle(kMostInFlight - 1); }

  /// Only when there is room for it looks whether to begin it.
  bool append(std::shared_ptr<const prefetch::Program> program, Tag tag) {
    await_room();
    if (stopping()) return false;
    a_.driver->append(std::move(program), tag.pack());
    return true;
  }

  /// What is no step, beside the steps that are under way and the next one.
  void append_between(std::shared_ptr<const prefetch::Program> program, Tag tag) {
    await_room();
    a_.driver->append(std::move(program), tag.pack());
    disturbed_ = done_;
  }

  /// Tells of each program as soon as it has run, not only when all have.
  void settle(std::size_t in_flight) {
    for (std::size_t left = kMostInFlight; left-- > in_flight;) {
      for (const executor::Finished& finished : a_.driver->wait(left)) told(finished);
    }
  }

  void told(const executor::Finished& finished) {
    const Tag tag = Tag::unpack(finished.tag);
    a_.ledger.set_peaks(s_.plan_.catalog.pools, s_.plan_.catalog.tags, finished.peak_slots);
    profile(finished, tag);
    if (tag.kind != Tag::Kind::kStep) disturbed_ = done_;
    switch (tag.kind) {
      case Tag::Kind::kInit:
        a_.host.begun();
        last_ = finished;
        moved_ = a_.conductor.moved();
        return;
      case Tag::Kind::kStep:
        return step_finished(finished, tag.step);
      case Tag::Kind::kEvaluation:
        pending_->valid_loss = a_.host.take_evaluation(tag.step);
        return report();
      case Tag::Kind::kCheckpoint:
      case Tag::Kind::kPendingCheckpoint:
        if (a_.saver.publish(tag.step)) saved_ = tag.step;
        return;
      case Tag::Kind::kDrain:  // its time is the next step's
        if (pending_ && !evaluates(tag.step - 1)) report();
        return;
      case Tag::Kind::kFinal:
        return;
    }
  }

  void step_finished(const executor::Finished& finished, std::int64_t step) {
    const StepResult result = a_.host.take_step(step);
    data::StepRecord record;
    record.step = step + 1;
    record.steps = s_.steps_;
    record.loss = result.loss;
    record.gnorm = result.gnorm;
    if (s_.setup_.clips_segments) record.largest_gnorm = result.largest_gnorm;
    record.lr = result.lr;
    record.clip = result.clip;
    if (s_.job_.compute == DType::kF16) record.loss_scale = result.loss_scale;
    record.skipped = result.skipped;
    const Begun begun = begun_.extract(step).mapped();
    record.delayed = begun.delayed;
    if (begun.program == s_.plan_.programs.step) record.forecast = forecast_;
    record.tokens = s_.setup_.tokens_per_step();
    record.targets = result.targets;
    record.flops = step_flops_;
    a_.watchdog->step_took(finished.end - last_.end);
    record.seconds = to_seconds(finished.end - last_.end);
    if (peak_flops_ > 0) record.mfu = record.flops / (record.seconds * peak_flops_);
    mean_.add(record.seconds);
    record.mean_seconds = mean_.value();
    record.lanes = account_.between(last_.lanes, finished.lanes, finished.end - last_.end);
    for (const data::LaneShare& lane : record.lanes) {
      if (lane.busy <= record.bound_share) continue;
      record.bound_share = lane.busy;
      record.bound = lane.lane;
    }
    record.cpu_bytes = a_.ledger.used(Tier::kCpu);
    record.cpu_limit = a_.ledger.limit(Tier::kCpu);
    record.gpu_bytes = a_.ledger.used(Tier::kGpu);
    const Conductor::Moved moved = a_.conductor.moved();
    record.h2d_bytes = moved.h2d - moved_.h2d;
    record.d2h_bytes = moved.d2h - moved_.d2h;
    record.nvme_read_bytes = moved.nvme_read - moved_.nvme_read;
    record.nvme_write_bytes = moved.nvme_written - moved_.nvme_written;
    moved_ = moved;
    last_ = finished;
    finished_steps_ = record.step - s_.position_.step;
    if (finished_steps_ <= kUnusualSteps) usual_from_ = finished.lanes;
    pending_ = record;
    const bool drained = record.delayed && record.step == last_step_;
    if (!evaluates(step) && !drained) report();
    const bool steady = finished_steps_ > kUnusualSteps && step > disturbed_ && !record.skipped;
    if (steady && begun.program == s_.plan_.programs.step) judge(record);
  }

  void judge(const data::StepRecord& record) {
    for (const std::string& found : pace_.add(record)) log::warning(found);
  }

  /// Keeps the spans of what the profile is about, and writes it when its last program has run.
  void profile(const executor::Finished& finished, Tag tag) {
    const bool evaluation = tag.kind == Tag::Kind::kEvaluation;
    const std::int64_t step = tag.step + 1;
    if (!profile_ || (!evaluation && tag.kind != Tag::Kind::kStep) || !profile_->wants(step)) {
      return;
    }
    const auto& program = evaluation ? s_.plan_.programs.evaluation : begun_.at(tag.step).program;
    profile_->collect(step, finished.instance, *program, *a_.trace);
    const bool last = step == std::min(s_.job_.profile.steps->last, last_step_);
    if (last && evaluation == evaluates(tag.step)) profile_->write();
  }

  /// Of a step, when what belongs to it has run: its evaluation, of the last one its update.
  void report() {
    pending_->nvme_write_total = a_.conductor.moved().nvme_written;
    if (pending_->step == last_step_ || stopping()) {
      a_.note_workspace();
      for (const memory::Ledger::Entry& entry : a_.ledger.entries()) {
        pending_->memory.push_back({std::string(name_of(entry.tier)),
                                    std::string(name_of(entry.tag)), entry.reserved, entry.peak});
      }
      pending_->resident_peak = memory::peak_resident().value_or(0);
      if (a_.store) pending_->nvme = a_.store->describe();
    }
    if (s_.job_.on_step) s_.job_.on_step(*pending_);
    pending_.reset();
  }

  void save() {
    append_between(s_.plan_.programs.final, {Tag::Kind::kFinal, done_});
    settle(0);
    a_.writer->finish();
  }

  /// A step that is under way.
  struct Begun {
    std::shared_ptr<const prefetch::Program> program;
    bool delayed = false;
  };

  Session& s_;
  Assembly& a_;
  const std::int64_t last_step_ = s_.last_step();
  const Account account_{s_.plan_.lanes, s_.plan_.catalog.pools};
  // Of programs.step.
  const std::optional<data::Forecast> forecast_ = account_.expected(s_.plan_.forecast);
  const double step_flops_ = s_.setup_.step_flops();
  const double peak_flops_ = size_of(s_.setup_.compute) == 2 ? gpu::device().peak_flops : 0;
  std::optional<Profile> profile_;
  std::int64_t done_ = s_.position_.step;    // steps begun, with those that the run goes on from
  std::int64_t saved_ = s_.position_.step;   // by the newest checkpoint that is whole
  std::int64_t asked_for_ = saved_;          // by the newest one that was begun
  Nanos asked_at_ = now_ns();                // when that was
  bool waiting_ = s_.setup_.begins_pending;  // a gradient, for its update
  std::map<std::int64_t, Begun> begun_;      // by step
  std::int64_t disturbed_ = -1;              // the last step with another program beside it
  std::int64_t finished_steps_ = 0;          // of this process
  executor::Finished last_{};
  std::vector<executor::LaneTime> usual_from_;  // the end of the last step that is not usual
  std::optional<data::StepRecord> pending_;
  data::MeanSeconds mean_;
  Pace pace_;
  Conductor::Moved moved_;
};

double Session::evaluate() {
  SLUICE_CHECK(plan_.programs.evaluation != nullptr, kConfig,
               "there is nothing to evaluate on: set data.valid");
  ::malloc_trim(0);
  Assembly assembly(*this);
  const Tag evaluation{Tag::Kind::kEvaluation, 0};
  assembly.driver->append(plan_.programs.init, Tag{Tag::Kind::kInit, position_.step}.pack());
  assembly.driver->append(plan_.programs.evaluation, evaluation.pack());
  assembly.driver->wait(0);
  return assembly.host.take_evaluation(evaluation.step);
}

Outcome Session::run() {
  // What measuring took goes back before the pools are filled: both at once would be the peak.
  ::malloc_trim(0);
  Assembly assembly(*this);
  log::info(assembly.ledger.table());
  if (assembly.store) log::info(assembly.store->describe());
  const Outcome outcome = Loop(*this, assembly).run();
  log::info(assembly.memory_report());
  const Bytes spilled = compute_->peak().spilled;
  if (spilled > 0) {
    log::warning(fmt::format("ops took {} beyond their workspace, counted in no tier",
                             format_bytes(spilled)));
  }
  return outcome;
}

}  // namespace sluice::train
