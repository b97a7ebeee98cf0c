/// How much of a step the executor wastes, and whether the simulator is right: trains the model of
/// a run file at its device's serial minimum + 2 layer slots, then simulates the same steps from
/// the program and the durations of its ops alone.
///
///   replay RUN.yaml [KEY=VALUE ...]
///
/// Beside it: the same steps op by op, and with everything in memory, the forward of each layer
/// kept.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/train/harness.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/config/load.h"
#include "engine/train/session.h"
#include "prefetch/simulate.h"

namespace sluice {
namespace {

constexpr std::size_t kWarmUp = 2;  // steps that are not looked at

std::vector<double> after_warm_up(const std::vector<double>& values) {
  return {values.begin() + kWarmUp, values.end()};
}

struct Ran {
  std::vector<double> seconds;  ///< by step
  std::string bound;            ///< the busiest lane of the last step
  double bound_share = 0;
};

Ran run(train::Session& session, const train::Job& job, std::vector<data::StepRecord>& records) {
  records.clear();
  session.run();
  std::filesystem::remove_all(job.folder + "/final");
  Ran ran;
  for (const auto& r : records) ran.seconds.push_back(r.seconds);
  std::vector<double> shares;
  for (const auto& r : records) shares.push_back(r.bound_share);
  ran.bound = records.back().bound;
  ran.bound_share = median(after_warm_up(shares));
  return ran;
}

/// The device's limit: what the serial run needs, and two layers' weights.
Bytes tight_limit(const train::Job& job) {
  const train::Session session(job);
  const plan::Plan& plan = session.plan();
  Bytes layer = 0;
  for (const shape::Block& block : plan.setup.model->blocks) {
    if (block.kind != shape::BlockKind::kLayer) continue;
    layer = plan.setup.segment_elems(block.segments.front()) * size_of(plan.setup.compute);
    break;
  }
  return plan.minimum[index(prefetch::Tier::kGpu)] + 2 * layer;
}

/// Seconds of each step, simulated from what each op of that step took.
std::vector<double> replayed(const train::Session& session, const Trace& trace, std::size_t steps) {
  const plan::Plan& plan = session.plan();
  const prefetch::Program& step = *plan.programs.step;
  const std::size_t ops = step.ops().size();
  std::vector<std::vector<prefetch::Cost>> costs(steps, std::vector<prefetch::Cost>(ops));
  for (const Span& span : trace.spans()) {
    const prefetch::OpRef op = executor::placed(span.where);
    if (op.instance == 0 || op.instance > steps) continue;  // before and after the steps
    costs[op.instance - 1][op.index].flops = to_seconds(span.end - span.begin);
  }
  std::vector<std::shared_ptr<const prefetch::Program>> stream;
  for (const auto& of_step : costs) stream.push_back(step.with_costs(of_step));
  prefetch::CostModel model;  // a "FLOP" is a second, on every lane
  prefetch::LaneCost timed;
  timed.flops_per_second = 1;
  model.lanes.assign(plan.lanes.size(), timed);
  // A span begins with the copy's turn.
  for (const auto lane : {schedule::LaneKind::kHostToDevice, schedule::LaneKind::kDeviceToHost}) {
    model.lanes[schedule::lane_of(lane)].at_once = 1;
  }
  const auto line =
      prefetch::simulate({plan.catalog.residents, plan.catalog.pools, plan.lanes}, stream, model);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < steps; ++i) {
    seconds.push_back(line.finished[i] - (i == 0 ? 0 : line.finished[i - 1]));
  }
  return seconds;
}

void bench(const std::string& file, const std::vector<std::string>& overrides) {
  const Scratch scratch("runs/replay");
  train::Job job = app::job_of(config::load(file, overrides, app::environment()), scratch.path());
  job.data.valid.clear();
  std::vector<data::StepRecord> records;
  job.on_step = [&](const data::StepRecord& r) { records.push_back(r); };
  const auto steps = static_cast<std::size_t>(job.train.steps.value());
  SLUICE_CHECK(steps > kWarmUp, kConfig, "train.steps must be 3 or more");
  job.tiers.gpu.limit = tight_limit(job);

  Trace trace(std::size_t{1} << 20);
  job.hooks.trace = &trace;
  // One session at a time: each takes LibTorch's allocations into its own workspace.
  auto session = std::make_optional<train::Session>(job);
  fmt::print("{}\n\n", session->report());
  const Ran overlapped = run(*session, job, records);
  const auto predicted = after_warm_up(replayed(*session, trace, steps));
  const int threads = session->numerics().threads;
  job.hooks.trace = nullptr;

  train::Job serial_job = job;
  serial_job.execution = train::Execution::kSerial;
  session.reset();
  session.emplace(serial_job);
  const Ran serial = run(*session, serial_job, records);

  train::Job resident_job = job;
  resident_job.homes = {};
  resident_job.homes.offload_param = schedule::ParamHome::kNone;
  resident_job.homes.offload_gradient = schedule::GradientHome::kNone;
  resident_job.homes.recompute = schedule::Recompute::kNone;
  resident_job.tiers.gpu = {};
  session.reset();
  session.emplace(resident_job);
  const Ran resident = run(*session, resident_job, records);

  const auto measured = after_warm_up(overlapped.seconds);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < measured.size(); ++i) ratios.push_back(predicted[i] / measured[i]);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  const double step = median(measured);
  fmt::print("\n{}\n", app::describe_machine(threads, job.cpu_adam.isa));
  fmt::print("device limited to {}\n", format_bytes(std::get<Bytes>(job.tiers.gpu.limit)));
  fmt::print("step: {:.3f} s measured, {:.3f} s simulated from its ops (medians of {})\n", step,
             median(predicted), measured.size());
  fmt::print("simulated over measured: {:.3f} (from {:.3f} to {:.3f})\n", median(ratios), *low,
             *high);
  const double serial_step = median(after_warm_up(serial.seconds));
  fmt::print("execution: serial {:.3f} s, {:.2f} times as long\n", serial_step, serial_step / step);
  fmt::print("busiest lane: {} {:.1f}% of the step\n", overlapped.bound,
             100 * overlapped.bound_share);
  const double resident_step = median(after_warm_up(resident.seconds));
  fmt::print("everything in memory, all layers kept {:.3f} s; this is {:.2f} times as long\n",
             resident_step, step / resident_step);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::run_bench(argc, argv, "RUN.yaml [KEY=VALUE ...]", sluice::bench);
}
