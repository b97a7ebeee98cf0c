/// When the optimizer works: `optimizer.update: end` beside `arriving` and `delayed`.
///
/// Simulated: steps of two Llamas on a GPU behind PCIe 5, over what the busiest lane has to do in
/// them, and over what it has to do in those of `end`: of a delayed update new weights are copied
/// home, which takes host memory's time. Measured:
/// steps of a small model on the host, which sleeps instead of computing, twice as long as Adam
/// works, weights on the device; over what the plan simulated for the rates of a serial run just
/// before, and over the same plan simulated for the rates that the ops had in the run itself.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/train/harness.h"
#include "engine/app/job_of.h"
#include "engine/base/cores.h"
#include "engine/base/median.h"
#include "engine/config/load.h"
#include "engine/plan/plan.h"
#include "engine/plan/rates.h"
#include "engine/schedule/ops.h"
#include "engine/shape/presets.h"
#include "engine/train/session.h"
#include "gpu/device.h"
#include "prefetch/simulate.h"

namespace sluice {
namespace {

using prefetch::CostModel;
using schedule::Operand;
using schedule::OpId;
using schedule::Update;

constexpr Update kUpdates[] = {Update::kEnd, Update::kArriving, Update::kDelayed};

// Simulated.

struct Shape {
  const char* name;
  shape::Decoder decoder;
};

std::vector<Shape> shapes() {
  shape::Decoder small = shape::find_preset("llama-1b");
  small.layers = 28;
  return {{"1.5B", small}, {"8B", shape::find_preset("llama-8b")}};
}

/// Host memory of 200 GB/s, of which Adam has all. Drives that read and write in turn.
CostModel pcie5() {
  plan::Rates rates;
  rates.flops = 600e12;
  rates.copy = 55e9;
  rates.adam = rates.sums = rates.norms = 200e9;
  rates.nvme_read = {6.5e9, 6.5e9};
  rates.nvme_write = {5e9, 5e9};
  return plan::cost_model(rates, schedule::make_lanes());
}

/// Weights in host memory, copied for each use; all tokens of a step in one micro-batch.
schedule::Setup setup_of(const Shape& shape, std::int64_t tokens, schedule::OptimizerHome state,
                         Update update) {
  schedule::Options homes;
  homes.offload_optimizer = state;
  schedule::Setup setup = schedule::make_setup(shape::make_model(shape.decoder), homes);
  setup.compute = DType::kBf16;
  setup.seq_len = 4096;
  setup.micro_batch_size = tokens / setup.seq_len;
  setup.update = update;
  setup.may_arrive = setup.clips_segments = true;
  setup.workspace = 4_GiB;
  return setup;
}

/// What one lane, or what lanes share, is needed for: no step is shorter.
using Load = std::pair<double, std::string>;

Load busiest(const plan::Plan& plan, const CostModel& cost) {
  std::vector<Load> lanes, shared;
  for (const prefetch::Lane& lane : plan.lanes) lanes.emplace_back(0, lane.name);
  for (const prefetch::Resource& r : cost.resources) shared.emplace_back(0, r.name);
  for (const prefetch::Op& op : plan.programs.step->ops()) {
    const double seconds = cost.seconds(op);
    lanes[op.lane].first += seconds / plan.lanes[op.lane].width;
    for (const auto& d : cost.of(op).demands) shared[d.resource].first += d.share * seconds;
  }
  return std::max(std::ranges::max(lanes), std::ranges::max(shared));
}

/// The plan's, but with so many for the gradients of layers.
prefetch::Pools with_layer_gradients(const plan::Plan& plan, std::uint32_t slots) {
  prefetch::Pools pools = plan.catalog.pools;
  const int layer = plan.setup.model->blocks[1].segments.front();
  const Bytes elem = size_of(plan.catalog.routes[static_cast<std::size_t>(layer)].dtype);
  const auto pool = plan.catalog.gradients.at(plan.setup.segment_elems(layer) * elem);
  pools[pool].slots = std::max(slots, plan.minimum_slots[pool]);
  return pools;
}

/// By pool of new weights on their way home: how many chunks of the model are of its size.
std::map<prefetch::PoolId, std::uint32_t> fresh_chunks(const plan::Plan& plan) {
  std::map<prefetch::PoolId, std::uint32_t> chunks;
  if (!plan.setup.delays()) return chunks;
  for (const auto& of_segment : plan.setup.chunks) {
    for (const zero::Chunk& chunk : of_segment) {
      ++chunks[plan.catalog.fresh.at(chunk.elems * size_of(plan.setup.compute))];
    }
  }
  return chunks;
}

/// The plan's, but with room for a quarter of the model's new weights.
prefetch::Pools with_a_quarter_fresh(const plan::Plan& plan) {
  prefetch::Pools pools = plan.catalog.pools;
  for (const auto& [pool, chunks] : fresh_chunks(plan)) {
    pools[pool].slots = std::max(chunks / 4, plan.minimum_slots[pool]);
  }
  return pools;
}

using OfPool = std::function<bool(std::size_t)>;
double host_gib(const prefetch::Pools& pools, const OfPool& counted) {
  Bytes bytes = 0;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    const bool there = pools[i].tier == prefetch::Tier::kCpu && counted(i);
    if (there) bytes += pools[i].slot * pools[i].slots;
  }
  return static_cast<double>(bytes) / 1_GiB;
}

void simulate(const Shape& shape, std::int64_t tokens, schedule::OptimizerHome state) {
  constexpr plan::Limits kGpuOf80GB{{80'000'000'000, plan::kEndless, plan::kEndless},
                                    plan::kEndless};
  const CostModel cost = pcie5();
  double least_of_end = 0;
  const auto print = [&](const plan::Plan& plan, const prefetch::Pools& pools, const char* which) {
    const auto [least, name] = busiest(plan, cost);
    if (plan.setup.update == Update::kEnd) least_of_end = least;
    const double step =
        prefetch::steady_step({plan.catalog.residents, pools, plan.lanes}, plan.programs.step, cost)
            .seconds;
    const auto gradient = [&](std::size_t pool) {
      return plan.catalog.tags[pool] == prefetch::MemoryTag::kGradient;
    };
    const auto fresh = [of = fresh_chunks(plan)](std::size_t pool) { return of.contains(pool); };
    fmt::print(
        "{:<5} {:>6} {:<5} {:<11} {:>7.3f} {:>7.3f} {:<18} {:>5.3f} {:>6.3f} {:>6.2f} {:>6.2f} "
        "{:>7.2f}\n",
        shape.name, tokens, schedule::name_of(state), which, step, least, name, step / least,
        step / least_of_end, host_gib(pools, gradient), host_gib(pools, fresh),
        host_gib(pools, [](auto) { return true; }));
  };
  for (const Update update : kUpdates) {
    const plan::Plan plan =
        plan::make_plan(setup_of(shape, tokens, state, update), kGpuOf80GB, 0, cost);
    print(plan, plan.catalog.pools, schedule::name_of(update).data());
    if (update == Update::kArriving) print(plan, with_layer_gradients(plan, 3), "  3 slots");
    if (update == Update::kDelayed) print(plan, with_a_quarter_fresh(plan), "  a quarter");
  }
}

// Measured.

constexpr const char* kRun = R"(
version: 1
model:
  config: {model_type: llama, vocab_size: 4096, hidden_size: 512, num_hidden_layers: 12,
           num_attention_heads: 8, num_key_value_heads: 8, intermediate_size: 1536,
           max_position_embeddings: 64, tie_word_embeddings: false}
data: {train: README.md, seq_len: 16}
train: {steps: 30, clip_scope: segment, on_nonfinite: stop}
precision: {compute: fp32}
zero_optimization: {offload_param: {device: none}, offload_optimizer: {device: cpu}}
activation_checkpointing: {policy: every_layer}
tiers: {gpu: {limit: 1GiB, unified: false}, cpu: {limit: 3GiB}}
)";
constexpr std::size_t kWarmUp = 3;  // steps that are not looked at
constexpr int kRounds = 5;          // of runs by turns

/// Sleeps for as long as each op is said to take, and finds gradients of nothing but zeros.
class Asleep : public train::Compute {
 public:
  explicit Asleep(const std::map<OpId, double>& seconds) : seconds_(seconds) {}

  train::Measured measure(gpu::Stream&, Bytes, train::Wanted) override {
    return {{.main = kAlignment}, {}};
  }
  std::function<void()> example(gpu::Stream&) override { return {}; }
  void set_workspace(std::span<std::byte>, Bytes) override {}
  train::WorkspaceUse peak() const override { return {.main = kAlignment}; }
  void run(const train::OpBytes& op) override {
    const auto begin = std::chrono::steady_clock::now();
    if (op.has(Operand::kLoss)) op.values<double>(Operand::kLoss).front() = 1;
    for (const auto gradient : op.all(Operand::kGradients)) {
      std::ranges::fill(gradient, std::byte{0});
    }
    const auto found = seconds_.find(op.id);
    if (found == seconds_.end()) return;
    std::this_thread::sleep_until(begin + std::chrono::duration<double>(found->second));
  }

 private:
  const std::map<OpId, double>& seconds_;
};

struct Ran {
  double step_s;          ///< the median
  double simulated;       ///< by its plan
  double with_own_rates;  ///< the same plan, for what the ops took in this run
  plan::Rates rates;      ///< of its ops, alone or beside others as they ran
};

plan::Rates rates_of(const train::Session& session, const Trace& trace) {
  std::map<OpId, double> bytes, seconds, count;  // of all ops of the steps
  for (const Span& span : trace.spans()) {
    const prefetch::OpRef at = executor::placed(span.where);
    if (at.instance <= kWarmUp || at.instance > static_cast<std::size_t>(session.steps())) continue;
    const prefetch::Op& op = session.plan().programs.step->ops()[at.index];
    bytes[schedule::id_of(op)] += op.cost.bytes;
    seconds[schedule::id_of(op)] += to_seconds(span.end - span.begin);
    ++count[schedule::id_of(op)];
  }
  plan::Rates rates;
  rates.adam = rates.first_values = bytes.at(OpId::kAdam) / seconds.at(OpId::kAdam);
  rates.sums = rates.norms = bytes.at(OpId::kNorm) / seconds.at(OpId::kNorm);
  rates.copy = (bytes.at(OpId::kPublish) + bytes.at(OpId::kOffloadGradient)) /
               (seconds.at(OpId::kPublish) + seconds.at(OpId::kOffloadGradient));
  for (const auto& [id, sum] : seconds) {
    const bool computes = schedule::row_of(id).lane == schedule::LaneKind::kCompute;
    if (computes) rates.compute[id] = {0, 0, sum / count.at(id)};
  }
  return rates;
}

Ran run(train::Job job, Update update, train::Execution execution) {
  Trace trace(std::size_t{1} << 18);
  std::vector<double> seconds;
  job.hooks.trace = &trace;
  job.execution = execution;
  job.optimizer.update = update;
  job.optimizer.delayed_update_start = 0;
  job.on_step = [&](const data::StepRecord& r) { seconds.push_back(r.seconds); };
  train::Session session(job);
  session.run();
  std::filesystem::remove_all(job.folder + "/final");
  const plan::Rates rates = rates_of(session, trace);
  const auto own =
      plan::steady_step(session.plan(), plan::cost_model(rates, schedule::make_lanes()));
  return {median({seconds.begin() + kWarmUp, seconds.end()}), session.plan().forecast.step_s,
          own.value().seconds, rates};
}

double median_of(const std::vector<Ran>& rounds, const std::function<double(const Ran&)>& value) {
  std::vector<double> values;
  for (const Ran& ran : rounds) values.push_back(value(ran));
  return median(std::move(values));
}

void print(Update update, const std::vector<Ran>& rounds, const std::vector<Ran>& end) {
  const auto of = [&](const auto& value) { return median_of(rounds, value); };
  std::vector<double> faster;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    faster.push_back(end[i].step_s / rounds[i].step_s);
  }
  fmt::print(
      "{:<8} step {:.4f} s, {:.3f} times as fast as end; over the one simulated before {:.3f}; "
      "over that for the rates of the run {:.3f}: Adam {:.1f} GB/s, copies {:.1f} GB/s\n",
      schedule::name_of(update), of([](const Ran& r) { return r.step_s; }), median(faster),
      of([](const Ran& r) { return r.step_s / r.simulated; }),
      of([](const Ran& r) { return r.step_s / r.with_own_rates; }),
      of([](const Ran& r) { return r.rates.adam / 1e9; }),
      of([](const Ran& r) { return r.rates.copy / 1e9; }));
}

void measure() {
  if (gpu::device().backend != gpu::Backend::kHost) return;  // nobody sleeps on a device
  const Scratch scratch("runs/update");
  log::set_level(log::Level::kWarning);
  train::Job job = app::job_of(config::from_text(kRun), scratch.path());
  job.cpu_adam.threads = 1;
  job.rates = plan::Rates{};
  std::map<OpId, double> seconds;
  job.make_compute = [&](const auto&, const auto&) { return std::make_unique<Asleep>(seconds); };
  // One op after the other, without sleep: what a core does for each lane.
  plan::Rates rates = run(job, Update::kEnd, train::Execution::kSerial).rates;
  rates.compute.clear();
  rates.cpu_cores = rates.copy_cores = 1.0 / core_count();

  const schedule::Setup setup = train::read_inputs(job).setup;
  const auto step = schedule::step_program(setup, schedule::make_catalog(setup));
  double adam = 0, flops = 0;
  for (const prefetch::Op& op : step->ops()) {
    flops += op.cost.flops;
    if (schedule::id_of(op) == OpId::kAdam) adam += op.cost.bytes / rates.adam;
  }
  rates.flops = flops / (2 * adam);
  job.rates = rates;
  for (const prefetch::Op& op : step->ops()) {
    if (op.cost.flops > 0) seconds[schedule::id_of(op)] = op.cost.flops / rates.flops;
  }
  fmt::print(
      "alone: Adam {:.1f} GB/s, copies {:.1f} GB/s; in a step {:.3f} s of Adam, twice that "
      "of sleep\n",
      rates.adam / 1e9, rates.copy / 1e9, adam);
  std::map<Update, std::vector<Ran>> rounds;
  for (int i = 0; i < kRounds; ++i) {
    for (const Update update : kUpdates) {
      rounds[update].push_back(run(job, update, train::Execution::kOverlapped));
    }
  }
  for (const Update update : kUpdates) print(update, rounds[update], rounds[Update::kEnd]);
}

void bench() {
  using schedule::OptimizerHome;
  fmt::print("{:<5} {:>6} {:<5} {:<11} {:>7} {:>7} {:<18} {:>5} {:>6} {:>6} {:>6} {:>7}\n", "model",
             "tokens", "state", "update", "step s", "at least", "of", "ratio", "of end", "grads",
             "fresh", "cpu GiB");
  for (const Shape& shape : shapes()) {
    for (const std::int64_t tokens : {4096, 16384, 65536}) {
      for (const auto state : {OptimizerHome::kCpu, OptimizerHome::kNvme}) {
        simulate(shape, tokens, state);
      }
    }
  }
  fmt::print("\n");
  measure();
}

}  // namespace
}  // namespace sluice

int main() {
  return sluice::run_bench(sluice::bench);
}
