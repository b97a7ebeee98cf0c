/// Does the forecast hold? Runs small models on several placements, budgets and numbers of tokens,
/// overlapped and op by op, and holds the step that was forecast before each run against the run's
/// median step, what was planned of each tier against the run's ledger, and what the step should
/// copy, read and write against what it did. A machine that others use, too, may be another one ten
/// seconds later: after each run all is measured once more, and the runs whose step is then
/// forecast to take as long are summed up again.
///
///   forecast [PART [FOLDER [ROUNDS]]]
///
/// With a part of a run's name only such runs, and of each kind of op what it should take alone,
/// what it takes in the simulated step, overlapped, and what it took. '' is a part of all names.
/// FOLDER is on the drive; one of runs/ without. In several rounds, each through all runs, the
/// median error of each run counts: what is left is the forecast's, what comes and goes is the
/// machine's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/train/harness.h"
#include "engine/app/job_of.h"
#include "engine/base/median.h"
#include "engine/config/load.h"
#include "engine/schedule/ops.h"
#include "engine/train/session.h"
#include "prefetch/simulate.h"

namespace sluice {
namespace {

constexpr std::size_t kWarmUp = 3;  // steps that are not looked at
constexpr double kAlike = 0.1;      // forecasts that are no further apart

constexpr const char* kRun = R"(
version: 1
data: {train: ["docs/*.md", "engine/**/*.h"], seq_len: 128}
train: {steps: 9}
precision: {compute: bf16}
scheduler: {type: constant, warmup_steps: 0}
tiers: {gpu: {limit: 3GiB, unified: false}, cpu: {limit: 4GiB}}
)";

struct Named {
  const char* name;
  std::vector<std::string> overrides;
};

std::vector<Named> shapes() {
  return {{"gpt2",
           {"model.config={model_type: gpt2, vocab_size: 8192, n_embd: 512, n_layer: 6, "
            "n_head: 8, n_positions: 1024}"}},
          {"llama",
           {"model.config={model_type: llama, vocab_size: 8192, hidden_size: 768, "
            "num_hidden_layers: 6, num_attention_heads: 12, num_key_value_heads: 12, "
            "intermediate_size: 2048, max_position_embeddings: 1024, "
            "tie_word_embeddings: false}"}}};
}

Named homes(const char* name, const std::string& param, const std::string& optimizer,
            const std::vector<std::string>& more = {}) {
  Named of{name, more};
  of.overrides.push_back("zero_optimization.offload_param.device=" + param);
  of.overrides.push_back("zero_optimization.offload_optimizer.device=" + optimizer);
  return of;
}

const std::vector<Named> kResident{
    homes("memory", "none", "none", {"zero_optimization.offload_gradient.device=none"}),
    homes("state_cpu", "none", "cpu")};
const std::vector<Named> kStreamed{homes("all_cpu", "cpu", "cpu"),
                                   homes("state_nvme", "cpu", "nvme")};
const Named kAllNvme =
    homes("all_nvme", "nvme", "nvme", {"zero_optimization.offload_activation.device=cpu"});
/// Short steps are more of them: a machine's rate moves within seconds.
const Named kFewTokens{"128", {"train.train_micro_batch_size_per_gpu=1", "train.steps=24"}};
const Named kMoreTokens{"1024", {"data.seq_len=512", "train.train_micro_batch_size_per_gpu=2"}};

enum class Budget : std::uint8_t { kAmple, kTight };

struct Case {
  Named shape, placement, tokens;
  Budget budget = Budget::kAmple;
  train::Execution execution = train::Execution::kOverlapped;

  std::string name() const {
    const bool tight = budget == Budget::kTight;
    const bool serial = execution == train::Execution::kSerial;
    return fmt::format("{}/{}/{}{}{}", shape.name, placement.name, tokens.name,
                       tight ? "/tight" : "", serial ? "/serial" : "");
  }
  bool overlaps_drive() const {
    return execution == train::Execution::kOverlapped && name().find("nvme") != std::string::npos;
  }
};

std::vector<Case> cases() {
  std::vector<Named> placements = kResident;
  placements.insert(placements.end(), kStreamed.begin(), kStreamed.end());
  placements.push_back(kAllNvme);
  std::vector<Case> all;
  for (const Named& shape : shapes()) {
    for (const Named& placement : placements) {
      for (const Named& tokens : {kFewTokens, kMoreTokens}) {
        all.push_back({shape, placement, tokens});
      }
    }
    for (const Named& placement : kStreamed) {
      all.push_back({shape, placement, kMoreTokens, Budget::kTight});
      all.push_back({shape, placement, kMoreTokens, Budget::kAmple, train::Execution::kSerial});
    }
  }
  return all;
}

/// The device's limit: what the serial run needs, and a layer's weights.
Bytes tight_limit(train::Job job) {
  job.rates = plan::Rates{};  // no matter here
  const train::Session session(job);
  const plan::Plan& plan = session.plan();
  const int layer = plan.setup.model->blocks.at(1).segments.front();
  return plan.minimum[index(prefetch::Tier::kGpu)] +
         plan.setup.segment_elems(layer) * size_of(plan.setup.compute);
}

train::Job job_of(const Case& of, const std::string& folder) {
  std::vector<std::string> overrides;
  for (const Named& part : {of.shape, of.placement, of.tokens}) {
    overrides.insert(overrides.end(), part.overrides.begin(), part.overrides.end());
  }
  train::Job job = app::job_of(config::from_text(kRun, overrides), folder);
  job.execution = of.execution;
  if (of.budget == Budget::kTight) job.tiers.gpu.limit = tight_limit(job);
  return job;
}

struct Ran {
  double forecast_s = 0, step_s = 0;
  double moved = 0;  ///< the forecast after the run over that before it, less 1
  bool bytes_hold = false;

  double error() const { return forecast_s / step_s - 1; }
};

/// Of each tier, of copies and of what drives carry: just as planned.
bool bytes_hold(const plan::Plan& plan, const std::vector<data::StepRecord>& records) {
  std::map<std::string, Bytes> reserved;
  for (const data::MemoryUse& use : records.back().memory) reserved[use.tier] += use.reserved;
  for (const prefetch::Tier tier : prefetch::kTiers) {
    if (reserved[std::string(name_of(tier))] != plan.planned[index(tier)]) return false;
  }
  // Overlapped, what one step moves may be counted in its neighbour.
  using enum schedule::LaneKind;
  for (const auto& [lane, bytes] : {std::pair{kHostToDevice, &data::StepRecord::h2d_bytes},
                                    {kDeviceToHost, &data::StepRecord::d2h_bytes},
                                    {kNvmeRead, &data::StepRecord::nvme_read_bytes},
                                    {kNvmeWrite, &data::StepRecord::nvme_write_bytes}}) {
    Bytes moved = 0;
    for (const data::StepRecord& r : records) moved += r.*bytes;
    if (moved != plan::moved(*plan.programs.step, lane) * records.size()) return false;
  }
  return true;
}

struct Trained {
  plan::Plan plan;
  prefetch::CostModel cost;
  std::vector<data::StepRecord> records;
};

Trained trained(train::Job job, Trace& trace) {
  Trained done;
  job.hooks.trace = &trace;
  job.on_step = [&](const data::StepRecord& r) { done.records.push_back(r); };
  train::Session session(job);
  session.run();
  done.plan = session.plan();
  done.cost = session.cost();
  return done;
}

void print_lanes(const Trained& done) {
  const auto& [plan, cost, records] = done;
  const std::vector<double>& forecast = plan.forecast.busy;
  for (std::size_t lane = 0; lane < forecast.size(); ++lane) {
    std::vector<double> measured;
    for (std::size_t i = kWarmUp; i < records.size(); ++i) {
      for (const data::LaneShare& share : records[i].lanes) {
        if (share.lane == plan.lanes[lane].name) {
          measured.push_back(share.busy * records[i].seconds);
        }
      }
    }
    if (measured.empty()) continue;
    fmt::print("    lane {:<18} busy {:>8.2f} ms forecast, {:>8.2f} ms\n", plan.lanes[lane].name,
               1e3 * forecast[lane], 1e3 * median(measured));
  }
}

void print_ops(const Trained& done, const Trace& trace) {
  struct Kind {
    double alone = 0, simulated = 0, took = 0;
    std::size_t count = 0;
  };
  std::map<std::string, Kind> kinds;
  const auto& [plan, cost, records] = done;
  const std::vector stream(prefetch::kSteadySteps, plan.programs.step);
  const prefetch::Timeline line =
      prefetch::simulate({plan.catalog.residents, plan.catalog.pools, plan.lanes}, stream, cost);
  for (const prefetch::Timeline::Span& span : line.spans) {
    const bool steady =
        span.op.instance >= prefetch::kFirstSteady && span.op.instance <= prefetch::kLastSteady;
    if (!steady) continue;
    kinds[plan.programs.step->ops()[span.op.index].kind.name].simulated +=
        (span.end - span.begin) / prefetch::kCountedSteps;
  }
  for (const Span& span : trace.spans()) {
    const prefetch::OpRef at = executor::placed(span.where);
    if (at.instance <= kWarmUp || at.instance > records.size()) continue;
    const prefetch::Op& op = plan.programs.step->ops()[at.index];
    Kind& kind = kinds[op.kind.name];
    kind.alone += cost.seconds(op);
    kind.took += to_seconds(span.end - span.begin);
    ++kind.count;
  }
  const auto counted = static_cast<double>(records.size() - kWarmUp);
  for (const auto& [name, kind] : kinds) {
    fmt::print("    {:<23} {:>5.0f} x, {:>8.2f} ms alone, {:>8.2f} simulated, {:>8.2f} ms\n", name,
               static_cast<double>(kind.count) / counted, 1e3 * kind.alone / counted,
               1e3 * kind.simulated, 1e3 * kind.took / counted);
  }
}

/// Of this plan's step, without checks of what drives carry, by what is measured at this moment.
double forecast_now(const plan::Plan& plan, const Case& of, const std::string& folder) {
  const Scratch scratch(folder);
  const train::Session session(job_of(of, scratch.path()));
  if (of.execution == train::Execution::kSerial) {
    return plan::serial_step(plan, session.cost()).seconds;
  }
  return plan::steady_step(plan, session.cost()).value().seconds;
}

enum class Detail : std::uint8_t { kStep, kOps };

Ran run(const Case& of, Detail detail, const std::string& folder) {
  const Scratch scratch(folder);
  Trace trace(std::size_t{1} << 18);
  const Trained done = trained(job_of(of, scratch.path()), trace);
  const plan::Forecast& forecast = done.plan.forecast;
  std::vector<double> seconds;
  for (std::size_t i = kWarmUp; i < done.records.size(); ++i) {
    seconds.push_back(done.records[i].seconds);
  }
  const double again_s = forecast_now(done.plan, of, scratch.path() + "/again");
  const Ran ran{forecast.seconds(), median(seconds), again_s / forecast.step_s - 1,
                bytes_hold(done.plan, done.records)};
  fmt::print("{:<30} {:>8.3f} {:>8.3f} {:>+7.1f}% {:<12} {:>+5.0f}% {}\n", of.name(),
             ran.forecast_s, ran.step_s, 100 * ran.error(), forecast.bound, 100 * ran.moved,
             ran.bytes_hold ? "as planned" : "NOT AS PLANNED");
  if (detail == Detail::kOps) {
    print_lanes(done);
    print_ops(done, trace);
  }
  std::fflush(stdout);
  return ran;
}

/// By run; of several rounds, whatever their signs, the median counts.
class Errors {
 public:
  void add(const std::string& run, double error) { of_[run].push_back(std::abs(error)); }
  void sum_up(const std::string& which) const {
    if (of_.empty()) {
      fmt::print("no {}\n", which);
      return;
    }
    std::vector<double> errors;
    std::size_t most = 0;
    double worst_of_one = 0;
    for (const auto& [run, rounds] : of_) {
      errors.push_back(median(rounds));
      most = std::max(most, rounds.size());
      worst_of_one = std::max(worst_of_one, *std::ranges::max_element(rounds));
    }
    fmt::print("{} {}: median error {:.1f}%, worst {:.1f}%", errors.size(), which,
               100 * median(errors), 100 * *std::ranges::max_element(errors));
    if (most > 1) fmt::print(", in one round {:.1f}%", 100 * worst_of_one);
    fmt::print("\n");
  }

 private:
  std::map<std::string, std::vector<double>> of_;
};

void bench(const std::string& part, const std::string& folder, int rounds) {
  log::set_level(log::Level::kWarning);
  fmt::print("{:<30} {:>8} {:>8} {:>8} {:<12} {:>6} {}\n", "run", "forecast", "step s", "error",
             "bound", "again", "bytes");
  Errors errors, alike, on_drive;
  std::vector<Case> wanted;
  for (int round = 0; round < rounds; ++round) {
    std::ranges::copy_if(cases(), std::back_inserter(wanted),
                         [&](const Case& of) { return of.name().find(part) != std::string::npos; });
  }
  SLUICE_CHECK(!wanted.empty(), kConfig, fmt::format("no run has '{}' in its name", part));
  bool hold = true;
  for (const Case& of : wanted) {
    const Ran ran = run(of, part.empty() ? Detail::kStep : Detail::kOps, folder);
    errors.add(of.name(), ran.error());
    if (std::abs(ran.moved) <= kAlike) alike.add(of.name(), ran.error());
    if (of.overlaps_drive()) on_drive.add(of.name(), ran.error());
    hold = hold && ran.bytes_hold;
  }
  errors.sum_up("runs");
  alike.sum_up(fmt::format("runs of which as much was forecast again after the run, within {:.0f}%",
                           100 * kAlike));
  on_drive.sum_up("overlapped runs that use the drive");
  fmt::print("bytes {}\n", hold ? "as planned" : "NOT AS PLANNED");
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::run_bench([&] {
    sluice::bench(argc > 1 ? argv[1] : "",
                  argc > 2 ? std::string(argv[2]) + "/forecast" : "runs/forecast",
                  argc > 3 ? sluice::count_of(argv[3]) : 1);
  });
}
