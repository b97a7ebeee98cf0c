/// What it costs to look at a 70B step before it runs: writing the program, check(), one simulated
/// step; and what the scoreboard costs per op. Parameters and state on nvme, one micro-batch. Then
/// what append() costs, under the executor's lock, when many micro-batches use the same weights;
/// and whole plans near the largest that are planned, within memory a third above the least.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/plan/rates.h"
#include "engine/schedule/programs.h"
#include "engine/shape/family.h"
#include "prefetch/simulate.h"

namespace sluice {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Case {
  const char* name;
  std::int64_t layers, hidden, intermediate, vocab;
  std::optional<Bytes> sub_group_size;
  schedule::ParamHome param;
  std::int64_t micro_batches;
};

constexpr auto kNone = schedule::ParamHome::kNone;
constexpr auto kNvme = schedule::ParamHome::kNvme;

schedule::Setup llama(const Case& of) {
  shape::Decoder d = shape::find_family("llama").base;
  d.vocab = of.vocab;
  d.hidden = of.hidden;
  d.layers = of.layers;
  d.head_dim = 128;
  d.heads = of.hidden / d.head_dim;
  d.kv_heads = std::min<std::int64_t>(d.heads, 8);
  d.intermediate = of.intermediate;
  d.max_positions = 8192;
  schedule::Options homes;
  homes.offload_param = of.param;
  homes.offload_optimizer = schedule::OptimizerHome::kNvme;
  homes.sub_group_size = of.sub_group_size;
  schedule::Setup setup = schedule::make_setup(shape::make_model(d), homes);
  setup.compute = DType::kBf16;
  setup.seq_len = 4096;
  setup.micro_batches = of.micro_batches;
  setup.sweep = setup.streams_params() ? of.micro_batches : 1;
  setup.workspace = 4_GiB;
  return setup;
}

schedule::Setup llama_70b(schedule::ParamHome params, std::int64_t micro_batches) {
  return llama({"70B", 80, 8192, 28672, 128256, 64_MiB, params, micro_batches});
}

plan::Rates rates() {
  plan::Rates rates;
  rates.nvme_read = {3e9, 6e9};
  rates.nvme_write = {2e9, 4e9};
  rates.flops = 5e14;
  return rates;
}

/// The scoreboard alone: every op starts as soon as it may, and is done at once.
double scoreboard_seconds(const prefetch::Simulation& machine,
                          const std::shared_ptr<const prefetch::Program>& step) {
  prefetch::Scoreboard board(machine.residents, machine.pools, machine.lanes);
  const auto begin = std::chrono::steady_clock::now();
  board.append(step);
  while (!board.idle()) {
    for (prefetch::LaneId lane = 0; lane < machine.lanes.size(); ++lane) {
      const auto op = board.next(lane);
      if (!op) continue;
      if (machine.lanes[lane].issue == prefetch::Issue::kFifo) board.issued(*op);
      board.completed(*op);
    }
  }
  return seconds_since(begin);
}

/// Two steps in flight, as in a run; weights on the device, used by one micro-batch after the
/// other.
void append() {
  constexpr std::int64_t kMicroBatches = 64;
  const schedule::Setup setup = llama_70b(kNone, kMicroBatches);
  const schedule::Catalog catalog = schedule::make_catalog(setup);
  const auto step = schedule::step_program(setup, catalog);
  prefetch::Scoreboard board(catalog.residents, catalog.pools, schedule::make_lanes());
  for (const char* which : {"first", "second"}) {
    const std::size_t before = board.edges();
    const auto begin = std::chrono::steady_clock::now();
    board.append(step);
    fmt::print("{} step of {} micro-batches: {} ops and {} edges appended in {:.3f} s\n", which,
               kMicroBatches, step->ops().size(), board.edges() - before, seconds_since(begin));
  }
}

void make_plan(const Case& of) {
  constexpr plan::Limits kEndless{{plan::kEndless, plan::kEndless, plan::kEndless}, plan::kEndless};
  const schedule::Setup setup = llama(of);
  auto begin = std::chrono::steady_clock::now();
  plan::Limits limits{plan::require_minimum(setup, kEndless, 0), plan::kEndless};
  const double minimum_s = seconds_since(begin);
  for (Bytes& bytes : limits.tiers) bytes += bytes / 3;
  begin = std::chrono::steady_clock::now();
  const plan::Plan plan =
      plan::make_plan(setup, limits, 0, plan::cost_model(rates(), schedule::make_lanes()));
  const double plan_s = seconds_since(begin);
  fmt::print("{:<20} {:>6} chunks, {:>5} micro-batches: minimum {:.1f} s, plan {:.1f} s\n", of.name,
             plan.setup.chunk_count(), setup.micro_batches, minimum_s, plan_s);
}

void check_and_simulate() {
  auto begin = std::chrono::steady_clock::now();
  const schedule::Setup setup = llama_70b(kNvme, 1);
  const schedule::Catalog catalog = schedule::make_catalog(setup);
  const auto init = schedule::init_program(setup, catalog);
  const auto step = schedule::step_program(setup, catalog);
  const std::size_t ops = step->ops().size();
  fmt::print("Llama, {:.1f}e9 parameters: {} ops in one step, written in {:.2f} s\n",
             static_cast<double>(setup.model->parameters()) / 1e9, ops, seconds_since(begin));

  const prefetch::Lanes lanes = schedule::make_lanes();
  prefetch::Initialised initialised(*catalog.residents);
  prefetch::Pools pools = catalog.pools;
  const auto first = prefetch::serial_minimum(*init, pools, lanes, initialised);
  begin = std::chrono::steady_clock::now();
  const auto minimum = prefetch::serial_minimum(*step, pools, lanes, initialised);
  const double check_s = seconds_since(begin);
  for (std::size_t i = 0; i < pools.size(); ++i) {
    pools[i].slots = std::max(first.slots[i], minimum.slots[i]) + 2;
  }

  const prefetch::Simulation machine{catalog.residents, pools, lanes};
  const std::vector stream{step};
  begin = std::chrono::steady_clock::now();
  const double simulated =
      prefetch::simulate(machine, stream, plan::cost_model(rates(), lanes)).seconds;
  const double simulate_s = seconds_since(begin);
  const double board_s = scoreboard_seconds(machine, step);
  fmt::print("check {:.3f} s, simulate {:.3f} s (a step of {:.0f} s), together {:.3f} s\n", check_s,
             simulate_s, simulated, check_s + simulate_s);
  fmt::print("scoreboard {:.3f} s, {:.2f} us per op\n", board_s,
             1e6 * board_s / static_cast<double>(ops));
}

}  // namespace
}  // namespace sluice

int main() {
  using namespace sluice;
  check_and_simulate();
  append();
  for (const Case& of : {Case{"70B", 80, 8192, 28672, 128256, std::nullopt, kNvme, 64},
                         {"70B", 80, 8192, 28672, 128256, std::nullopt, kNvme, 300},
                         {"1B, 160 KiB chunks", 16, 2048, 8192, 128256, 160_KiB, kNvme, 10},
                         {"400 layers", 400, 512, 1024, 1000, std::nullopt, kNvme, 400},
                         {"400 layers, resident", 400, 512, 1024, 1000, std::nullopt, kNone, 400},
                         {"1 layer", 1, 512, 1024, 1000, std::nullopt, kNone, 48000}}) {
    make_plan(of);
  }
}
