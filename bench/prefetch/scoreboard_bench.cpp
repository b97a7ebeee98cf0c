/// What scheduling itself costs, per op: the scoreboard, check() and the simulator on a program
/// that looks like a training step with state on disk.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "prefetch/simulate.h"

namespace sluice::prefetch {
namespace {

constexpr LaneId kCompute = 0, kCopy = 1, kRead = 2, kWrite = 3, kCpu = 4;
constexpr std::uint32_t kOpsPerSegment = 8;

struct Step {
  std::shared_ptr<const Program> program;
  Pools pools = {{"weights", Tier::kGpu, 4_KiB, 6},
                 {"gradients", Tier::kCpu, 4_KiB, 6},
                 {"state", Tier::kCpu, 4_KiB, 6}};
  Lanes lanes = {{"compute", 1, Issue::kFifo},
                 {"copy", 2, Issue::kOldestReady},
                 {"read", 2, Issue::kOldestReady},
                 {"write", 2, Issue::kOldestReady},
                 {"cpu", 1, Issue::kOldestReady}};
  CostModel cost;
};

/// Per segment: fetch, forward and backward, offload, read, update, write, publish.
Step make_step(std::uint32_t ops) {
  const std::uint32_t segments = ops / kOpsPerSegment;
  auto residents = std::make_shared<Residents>();
  std::vector<BufferId> weights, states;
  for (std::uint32_t s = 0; s < segments; ++s) {
    weights.push_back(residents->buffer({}));
    states.push_back(residents->buffer({}));
  }
  const BufferId constants = residents->buffer({});
  residents->seal();
  auto program = std::make_shared<Program>("step", residents);
  const auto op = [&](LaneId lane, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    Op made;
    made.lane = lane;
    made.reads = std::move(reads);
    made.writes = std::move(writes);
    made.cost.bytes = 1.0 + lane;
    program->op(std::move(made));
  };
  for (std::uint32_t s = 0; s < segments; ++s) {
    const BufferId weight = program->buffer({0, 4_KiB, MemoryTag::kParam});
    const BufferId gradient = program->buffer({0, 4_KiB, MemoryTag::kGradient});
    const BufferId home = program->buffer({1, 4_KiB, MemoryTag::kGradient});
    const BufferId state = program->buffer({2, 4_KiB, MemoryTag::kState});
    op(kCopy, {weights[s]}, {weight});
    op(kCompute, {weight, constants}, {});
    op(kCompute, {weight, constants}, {gradient});
    op(kCopy, {gradient}, {home});
    op(kRead, {states[s]}, {state});
    op(kCpu, {home, state, constants}, {state});
    op(kWrite, {state}, {states[s]});
    op(kCopy, {state}, {weights[s]});
  }
  program->seal();
  Step step;
  step.program = program;
  for (std::size_t i = 0; i < step.lanes.size(); ++i) {
    LaneCost cost;
    cost.bytes_per_second = 1;
    step.cost.lanes.push_back(cost);
  }
  return step;
}

void per_op(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void scoreboard(benchmark::State& state) {
  const Step step = make_step(static_cast<std::uint32_t>(state.range(0)));
  auto residents = std::shared_ptr<const Residents>(step.program, &step.program->residents());
  Scoreboard board(residents, step.pools, step.lanes);
  for (auto _ : state) {
    board.append(step.program);
    while (!board.idle()) {
      for (LaneId lane = 0; lane < step.lanes.size(); ++lane) {
        const auto op = board.next(lane);
        if (!op) continue;
        if (step.lanes[lane].issue == Issue::kFifo) board.issued(*op);
        benchmark::DoNotOptimize(board.completed(*op));
      }
    }
  }
  per_op(state);
}
BENCHMARK(scoreboard)->Arg(1'000)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

/// One op that names every buffer, and one persistent that everything reads: both stay linear.
void scoreboard_of_one_wide_op(benchmark::State& state) {
  auto residents = std::make_shared<Residents>();
  const BufferId record = residents->buffer({});
  residents->seal();
  for (auto _ : state) {
    auto program = std::make_shared<Program>("wide", residents);
    Op last;
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      Op op;
      op.reads = {record};
      op.writes = {program->buffer({})};
      last.reads.push_back(op.writes.front());
      program->op(std::move(op));
    }
    last.writes = {record};
    program->op(std::move(last));
    program->seal();
    Scoreboard board(residents, {}, {{"cpu", 1, Issue::kOldestReady}});
    board.append(program);
    while (const auto op = board.next(0)) board.completed(*op);
  }
  per_op(state);
}
BENCHMARK(scoreboard_of_one_wide_op)
    ->Arg(1'000)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMillisecond);

void check_program(benchmark::State& state) {
  const Step step = make_step(static_cast<std::uint32_t>(state.range(0)));
  Initialised initialised(step.program->residents());
  for (LeafId leaf = 0; leaf < step.program->residents().end_leaf(); ++leaf) {
    initialised.insert(leaf);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(check(*step.program, step.pools, step.lanes, initialised));
  }
  per_op(state);
}
BENCHMARK(check_program)->Arg(100'000)->Unit(benchmark::kMillisecond);

void simulate_step(benchmark::State& state) {
  const Step step = make_step(static_cast<std::uint32_t>(state.range(0)));
  const Simulation machine{
      std::shared_ptr<const Residents>(step.program, &step.program->residents()), step.pools,
      step.lanes};
  const std::vector<std::shared_ptr<const Program>> stream = {step.program};
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(machine, stream, step.cost));
  }
  per_op(state);
}
BENCHMARK(simulate_step)->Arg(1'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice::prefetch

BENCHMARK_MAIN();
