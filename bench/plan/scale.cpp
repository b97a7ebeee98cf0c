/// What it costs to look at a 70B step before it runs: writing the program, check(), one simulated
/// step; and what the scoreboard costs per op. Parameters and state on nvme, one micro-batch. Then
/// whole plans near the largest that are planned, within memory a third above the least: seconds of
/// a processor.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
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

struct Size {
  const char* name;
  std::int64_t layers, hidden, intermediate, vocab;
  std::optional<Bytes> sub_group_size;
  schedule::ParamHome param;
  std::int64_t micro_batches;
};

schedule::Setup llama(const Size& size) {
  shape::Decoder d = shape::find_family("llama").base;
  d.vocab = size.vocab;
  d.hidden = size.hidden;
  d.layers = size.layers;
  d.head_dim = 128;
  d.heads = size.hidden / d.head_dim;
  d.kv_heads = std::min<std::int64_t>(d.heads, 8);
  d.intermediate = size.intermediate;
  d.max_positions = 8192;
  schedule::Options homes;
  homes.offload_param = size.param;
  homes.offload_optimizer = schedule::OptimizerHome::kNvme;
  homes.sub_group_size = size.sub_group_size;
  schedule::Setup setup = schedule::make_setup(shape::make_model(d), homes);
  setup.compute = DType::kBf16;
  setup.seq_len = 4096;
  setup.workspace = 4_GiB;
  setup.micro_batches = size.micro_batches;
  setup.sweep = setup.streams_params() ? size.micro_batches : 1;
  return setup;
}

constexpr auto kNvme = schedule::ParamHome::kNvme;
constexpr Size k70b = {"70B", 80, 8192, 28672, 128256, 64_MiB, kNvme, 1};

plan::Rates rates() {
  plan::Rates rates;
  rates.nvme_read = {3e9, 6e9};
  rates.nvme_write = {2e9, 4e9};
  rates.flops = 5e14;
  return rates;
}

/// Of this process, whatever else the machine does: planning is one thread.
double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void plan_whole(const Size& size) {
  constexpr plan::Limits kEndless{{plan::kEndless, plan::kEndless, plan::kEndless}, plan::kEndless};
  const schedule::Setup setup = llama(size);
  double begin = processor_seconds();
  plan::Limits limits{plan::require_minimum(setup, kEndless, 0), plan::kEndless};
  const double minimum_s = processor_seconds() - begin;
  for (Bytes& bytes : limits.tiers) bytes += bytes / 3;
  begin = processor_seconds();
  const plan::Plan plan =
      plan::make_plan(setup, limits, 0, plan::cost_model(rates(), schedule::make_lanes()));
  fmt::print(
      "{:<22} {:>6} chunks, {:>5} micro-batches: minimum {:.1f} s, plan {:.1f} s, {:.1f} of "
      "{:.0f} million units\n",
      size.name, plan.setup.chunk_count(), setup.micro_batches, minimum_s,
      processor_seconds() - begin, static_cast<double>(plan.work) / 1e6,
      static_cast<double>(plan::kPlanningWork) / 1e6);
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

void run() {
  auto begin = std::chrono::steady_clock::now();
  const schedule::Setup setup = llama(k70b);
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
  run();
  constexpr auto kNone = schedule::ParamHome::kNone;
  for (const Size& size : {Size{"70B", 80, 8192, 28672, 128256, std::nullopt, kNvme, 64},
                           {"70B", 80, 8192, 28672, 128256, std::nullopt, kNvme, 300},
                           {"1B, 160 KiB chunks", 16, 2048, 8192, 128256, 160_KiB, kNvme, 10},
                           {"400 layers", 400, 512, 1024, 1000, std::nullopt, kNvme, 400},
                           {"400 layers, resident", 400, 512, 1024, 1000, std::nullopt, kNone, 400},
                           {"1 layer", 1, 512, 1024, 1000, std::nullopt, kNone, 48000}}) {
    plan_whole(size);
  }
}
