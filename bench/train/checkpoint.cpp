/// How long does a checkpoint hold up training, and how long does a run take to go on from one?
///
///   checkpoint RUN.yaml [KEY=VALUE ...]
///
/// Trains a few steps in a folder beside the runs, with a checkpoint after two of them, then goes
/// on from the last one. fio on the same drive, before: what it reads, what it writes into a new
/// file of the state's size, and how fast it does both at once.
///
/// Stall: how much longer the step is that runs beside a checkpoint than the median of the others.
/// Wanted: at most 1.1 of the time that the state's bytes take at fio's rate: of writing; where the
/// state is on the drive, from where it is read meanwhile, of both at once. Resume: from the first
/// op to the end of the first values, wanted at most 1.2 of reading the state, or likewise of both
/// where it is written to the drive. Verify: reading and comparing all of it, wanted at least 0.8
/// of fio's read rate. Memory: resident at most, with checkpoints and before the first.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/train/drive.h"
#include "bench/train/harness.h"
#include "cpu_adam/optimizer.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/base/median.h"
#include "engine/base/units.h"
#include "engine/checkpoint/state_scan.h"
#include "engine/config/load.h"
#include "engine/executor/driver.h"
#include "engine/memory/resident.h"
#include "engine/train/host_ops.h"
#include "engine/train/session.h"

namespace sluice {
namespace {

constexpr std::int64_t kSteps = 9;
constexpr std::int64_t kSavedAfter[] = {4, 7};

bool is_saved(std::int64_t step) {
  return std::ranges::find(kSavedAfter, step) != std::end(kSavedAfter);
}

struct Rates {
  double read, write, mixed;
};

Rates rates_of_fio(const std::string& folder, Bytes state) {
  bench::FioJob job;
  job.seconds = 3;
  const double read = measured_by_fio(job, bench::Traffic::kRead, folder).read_rate;
  const bench::Measured both = measured_by_fio(job, bench::Traffic::kMixed, folder);
  return {read, new_file_rate(job, std::min(state, 8_GiB), folder),
          std::min(both.read_rate, both.write_rate)};
}

/// Seconds of the steps by their number, from 1, and what was resident before the first checkpoint.
struct Trained {
  std::vector<double> seconds = {0};
  Bytes before = 0, peak = 0;
};

Trained train_and_save(train::Job job) {
  Trained trained;
  std::int64_t begun = 0;
  job.wants_checkpoint = [&] { return is_saved(++begun); };
  job.on_step = [&](const data::StepRecord& record) {
    trained.seconds.push_back(record.seconds);
    if (record.step < kSavedAfter[0]) trained.before = memory::peak_resident().value_or(0);
    log::info(fmt::format("step {}: {:.3f} s", record.step, record.seconds));
  };
  train::Session(job).run();
  trained.peak = memory::peak_resident().value_or(0);
  return trained;
}

/// Of the program of first values.
double resume_seconds(train::Job job, const std::string& checkpoint) {
  job.resume = checkpoint;
  job.train.steps = kSavedAfter[1];  // nothing is left to train
  Trace trace(std::size_t{1} << 20);
  job.hooks.trace = &trace;
  train::Session(job).run();
  Nanos begin = 0, end = 0;
  for (const Span& span : trace.spans()) {
    if (executor::placed(span.where).instance != 0) continue;
    begin = begin == 0 ? span.begin : std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  return to_seconds(end - begin);
}

/// All of it read, and its sums compared.
double verify_seconds(const train::Job& job, const std::string& folder) {
  const cpu_adam::Optimizer optimizer(job.cpu_adam);
  const Nanos begin = now_ns();
  const checkpoint::StateReader reader(folder, job.aio);
  checkpoint::scan_state(
      reader, train::threads_of(optimizer),
      {[](const checkpoint::StatePiece&) {}, [](const Error& e) { throw Error(e); }});
  return to_seconds(now_ns() - begin);
}

void measure(const std::string& file, const std::vector<std::string>& overrides) {
  const Scratch scratch("runs/checkpoint");
  train::Job job = app::job_of(config::load(file, overrides, app::environment()), scratch.path());
  job.train.steps = kSteps;
  job.train.epochs.reset();
  job.train.tokens.reset();
  job.checkpoint.every.reset();
  job.checkpoint.keep = 1;
  const shape::Model model = shape::make_model(job.decoder);
  const Bytes state = model.parameters() * zero::kStateBytesPerElem;
  const Rates fio = rates_of_fio(scratch.path(), state);

  const Trained trained = train_and_save(job);
  std::vector<double> usual, saved;
  for (std::int64_t step = 3; step <= kSteps; ++step) {  // the first two are unusual
    // The one after: it runs beside the checkpoint.
    (is_saved(step - 1) ? saved : usual).push_back(trained.seconds[static_cast<std::size_t>(step)]);
  }
  const double step_s = median(usual);
  const bool on_drive = job.homes.offload_optimizer == schedule::OptimizerHome::kNvme;
  const double writing_s = static_cast<double>(state) / (on_drive ? fio.mixed : fio.write);
  const double reading_s = static_cast<double>(state) / (on_drive ? fio.mixed : fio.read);
  fmt::print(
      "state {} {}; fio reads {:.2f} GB/s, writes a new file at {:.2f} GB/s, both at once at "
      "{:.2f} GB/s\n",
      format_bytes(state), on_drive ? "on the drive" : "in host memory", fio.read / 1e9,
      fio.write / 1e9, fio.mixed / 1e9);
  for (const double s : saved) {
    fmt::print(
        "step {:.3f} s, beside a checkpoint {:.3f} s: stall {:.2f} s, {:.2f} of what fio "
        "takes ({:.2f} s)\n",
        step_s, s, s - step_s, (s - step_s) / writing_s, writing_s);
  }
  fmt::print("resident at most {} before the first checkpoint, {} with them\n",
             format_bytes(trained.before), format_bytes(trained.peak));

  const std::string last = fmt::format("{}/checkpoints/step-{}", scratch.path(), kSavedAfter[1]);
  leave_the_page_cache(last);
  const double verify_s = verify_seconds(job, last);
  const double only_reading_s = static_cast<double>(state) / fio.read;
  fmt::print("verify: {:.2f} s, {:.2f} of fio's read rate\n", verify_s, only_reading_s / verify_s);
  leave_the_page_cache(last);
  std::filesystem::remove_all(scratch.path() + "/final");
  const double resume_s = resume_seconds(job, last);
  fmt::print("going on from it: first values in {:.2f} s, {:.2f} of what fio takes ({:.2f} s)\n",
             resume_s, resume_s / reading_s, reading_s);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::run_bench(argc, argv, "RUN.yaml [KEY=VALUE ...]", sluice::measure);
}
