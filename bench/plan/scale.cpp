/// What it costs to look at a 70B step before it runs: writing the program, check(), one simulated
/// step; and what the scoreboard costs per op. Parameters and state on nvme, one micro-batch. Then
/// what append() costs, under the executor's lock, when many micro-batches use the same weights.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <vector>

#include "engine/plan/rates.h"
#include "engine/schedule/programs.h"
#include "engine/shape/family.h"
#include "prefetch/simulate.h"

namespace sluice {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

schedule::Setup llama_70b(schedule::ParamHome params, std::int64_t micro_batches) {
  shape::Decoder d = shape::find_family("llama").base;
  d.vocab = 128256;
  d.hidden = 8192;
  d.layers = 80;
  d.heads = 64;
  d.kv_heads = 8;
  d.head_dim = 128;
  d.intermediate = 28672;
  d.max_positions = 8192;
  schedule::Options homes;
  homes.offload_param = params;
  homes.offload_optimizer = schedule::OptimizerHome::kNvme;
  homes.sub_group_size = 64_MiB;
  schedule::Setup setup = schedule::make_setup(shape::make_model(d), homes);
  setup.compute = DType::kBf16;
  setup.seq_len = 4096;
  setup.micro_batches = micro_batches;
  setup.workspace = 4_GiB;
  return setup;
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
  const schedule::Setup setup = llama_70b(schedule::ParamHome::kNone, kMicroBatches);
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

void run() {
  auto begin = std::chrono::steady_clock::now();
  const schedule::Setup setup = llama_70b(schedule::ParamHome::kNvme, 1);
  const schedule::Catalog catalog = schedule::make_catalog(setup);
  const auto init = schedule::init_program(setup, catalog);
  const auto step = schedule::step_program(setup, catalog);
  const std::size_t ops = step->ops().size();
  fmt::print("Llama, {:.1f}e9 parameters: {} ops in one step, written in {:.2f} s\n",
             static_cast<double>(setup.model.parameters()) / 1e9, ops, seconds_since(begin));

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

  plan::Rates rates;
  rates.nvme_read = {3e9, 6e9};
  rates.nvme_write = {2e9, 4e9};
  rates.flops = 5e14;
  const prefetch::Simulation machine{catalog.residents, pools, lanes};
  const std::vector stream{step};
  begin = std::chrono::steady_clock::now();
  const double simulated =
      prefetch::simulate(machine, stream, plan::cost_model(rates, lanes)).seconds;
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
  sluice::run();
  sluice::append();
}
