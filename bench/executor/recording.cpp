/// What it costs to record when each op could start, began and was complete: the executor alone,
/// with handlers that do nothing, with and without a trace, in turns.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "engine/base/median.h"
#include "engine/executor/driver.h"

namespace sluice {
namespace {

constexpr std::uint32_t kOps = 20'000;
constexpr int kRounds = 11;

struct Nothing : executor::Handler {
  Ticket start(const executor::OpContext&) override { return {}; }
};

/// One lane, op after op: what an op costs shows best where nothing runs beside it.
std::shared_ptr<const prefetch::Program> chain(
    const std::shared_ptr<const prefetch::Residents>& residents) {
  auto program = std::make_shared<prefetch::Program>("chain", residents);
  const auto link = program->buffer({});
  program->op({.kind = {}, .lane = 0, .where = {}, .reads = {}, .writes = {link}, .cost = {}});
  for (std::uint32_t i = 1; i < kOps; ++i) {
    program->op(
        {.kind = {}, .lane = 0, .where = {}, .reads = {link}, .writes = {link}, .cost = {}});
  }
  program->seal();
  return program;
}

double microseconds_per_op(Trace* trace) {
  auto residents = std::make_shared<prefetch::Residents>();
  residents->seal();
  const auto program = chain(residents);
  executor::Resources resources{residents, {}, {{"cpu", 1, prefetch::Issue::kOldestReady}}};
  resources.trace = trace;
  Nothing handler;
  const auto driver = executor::overlapped(resources, handler);
  const Nanos begin = now_ns();
  driver->append(program, 0);
  driver->wait(0);
  return static_cast<double>(now_ns() - begin) * 1e-3 / kOps;
}

}  // namespace
}  // namespace sluice

int main() {
  using namespace sluice;
  Trace trace(kOps);
  std::vector<double> without, with;
  for (int i = 0; i < kRounds; ++i) {
    without.push_back(microseconds_per_op(nullptr));
    with.push_back(microseconds_per_op(&trace));
  }
  const double cost = median(with) - median(without);
  fmt::print("executor: {:.2f} us per op; recording adds {:.2f} us (medians of {})\n",
             median(without), cost, kRounds);
  fmt::print("1% of a step of 100 ms with 400 ops is 2.50 us per op\n");
}
