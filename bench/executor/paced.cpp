/// Does the executor lose time? Programs of engine/schedule on real threads, with handlers that
/// only sleep: the measured step against the simulated one. `--quick`: three programs, three steps.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/median.h"
#include "engine/base/ticket.h"
#include "engine/executor/driver.h"
#include "engine/plan/plan.h"
#include "engine/schedule/ops.h"
#include "engine/shape/family.h"
#include "engine/shape/presets.h"
#include "prefetch/simulate.h"

namespace sluice {
namespace {

using executor::OpContext;
using prefetch::CostModel;
using schedule::ActivationHome;
using schedule::GradientHome;
using schedule::OptimizerHome;
using schedule::ParamHome;

constexpr double kShortest = 0.002, kLongest = 0.020;  // seconds

/// A stream whose work is to sleep: in order, one at a time.
class SleepingStream {
 public:
  SleepingStream() : worker_([this](std::stop_token stop) { run(stop); }) {}

  Ticket sleep(double seconds) {
    TicketSource source;
    Ticket ticket = source.ticket();
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({seconds, std::move(source)});
    }
    arrived_.notify_one();
    return ticket;
  }

 private:
  struct Work {
    double seconds;
    TicketSource ticket;
  };
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (arrived_.wait(lock, stop, [&] { return !queue_.empty(); })) {
      Work work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::duration<double>(work.seconds));
      work.ticket.finish();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::deque<Work> queue_;
  std::jthread worker_;
};

/// As long as the cost model says.
class Sleeper : public executor::Handler {
 public:
  Sleeper(const CostModel& cost, const prefetch::Lanes& lanes) : cost_(cost), lanes_(lanes) {}

  Ticket start(const OpContext& context) override {
    const double seconds = cost_.seconds(context.op);
    if (lanes_[context.op.lane].issue == prefetch::Issue::kFifo) return stream_.sleep(seconds);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return {};
  }

 private:
  const CostModel& cost_;
  const prefetch::Lanes& lanes_;
  SleepingStream stream_;  // of the one compute lane
};

/// On each lane the largest op takes kLongest, an empty one kShortest.
CostModel paced(const prefetch::Program& step, const prefetch::Lanes& lanes) {
  std::vector<double> bytes(lanes.size(), 0), flops(lanes.size(), 0);
  for (const prefetch::Op& op : step.ops()) {
    bytes[op.lane] = std::max(bytes[op.lane], op.cost.bytes);
    flops[op.lane] = std::max(flops[op.lane], op.cost.flops);
  }
  CostModel cost;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    // An op of the compute lane has FLOPs or bytes, never both.
    prefetch::LaneCost rate;
    rate.latency_s = kShortest;
    rate.bytes_per_second = bytes[lane] / (kLongest - kShortest);
    rate.flops_per_second = flops[lane] / (kLongest - kShortest);
    cost.lanes.push_back(rate);
  }
  return cost;
}

/// GPT-2: a large tied embedding and plain blocks. Llama: untied, gated, grouped queries.
enum class Shape : std::uint8_t { kGpt2, kLlama };

struct Case {
  Shape shape;
  ParamHome param;
  GradientHome gradient;
  OptimizerHome state;
  ActivationHome activation;
  std::int64_t micro_batches;
  std::int64_t layers;
  Bytes chunk;
};

std::string name_of(const Case& c) {
  const auto home = [](auto h) { return std::array{"none", "cpu", "nvme"}[static_cast<int>(h)]; };
  const char* state = c.state == OptimizerHome::kCpu ? "cpu" : "nvme";
  return fmt::format("{} p {} g {} s {} a {} | {} layers x {} | {}",
                     c.shape == Shape::kGpt2 ? "gpt2 " : "llama", home(c.param), home(c.gradient),
                     state, home(c.activation), c.layers, c.micro_batches, format_bytes(c.chunk));
}

std::vector<Case> cases() {
  using P = ParamHome;
  using G = GradientHome;
  using S = OptimizerHome;
  using A = ActivationHome;
  return {
      {Shape::kGpt2, P::kCpu, G::kCpu, S::kNvme, A::kNone, 1, 4, 16_MiB},
      {Shape::kLlama, P::kCpu, G::kCpu, S::kNvme, A::kNone, 1, 12, 32_MiB},
      {Shape::kGpt2, P::kCpu, G::kCpu, S::kNvme, A::kNone, 3, 6, 32_MiB},
      {Shape::kLlama, P::kCpu, G::kCpu, S::kNvme, A::kCpu, 1, 8, 32_MiB},
      {Shape::kGpt2, P::kCpu, G::kCpu, S::kNvme, A::kNvme, 1, 8, 32_MiB},
      {Shape::kLlama, P::kCpu, G::kCpu, S::kCpu, A::kNone, 1, 8, 16_MiB},
      {Shape::kGpt2, P::kCpu, G::kCpu, S::kCpu, A::kCpu, 2, 6, 32_MiB},
      {Shape::kLlama, P::kCpu, G::kNone, S::kNvme, A::kNone, 1, 6, 32_MiB},
      {Shape::kGpt2, P::kCpu, G::kNone, S::kCpu, A::kCpu, 1, 8, 32_MiB},
      {Shape::kLlama, P::kNone, G::kCpu, S::kNvme, A::kNone, 1, 8, 32_MiB},
      {Shape::kGpt2, P::kNone, G::kCpu, S::kCpu, A::kNone, 2, 6, 16_MiB},
      {Shape::kLlama, P::kNone, G::kNone, S::kNvme, A::kNone, 1, 8, 16_MiB},
      {Shape::kGpt2, P::kNone, G::kNone, S::kNvme, A::kCpu, 2, 6, 32_MiB},
      {Shape::kLlama, P::kNone, G::kNone, S::kCpu, A::kNvme, 1, 8, 16_MiB},
      {Shape::kGpt2, P::kNvme, G::kCpu, S::kNvme, A::kNone, 1, 8, 32_MiB},
      {Shape::kLlama, P::kNvme, G::kCpu, S::kNvme, A::kNone, 3, 4, 32_MiB},
      {Shape::kGpt2, P::kNvme, G::kCpu, S::kNvme, A::kCpu, 1, 6, 16_MiB},
      {Shape::kLlama, P::kNvme, G::kCpu, S::kNvme, A::kNvme, 2, 4, 32_MiB},
      {Shape::kGpt2, P::kNvme, G::kNone, S::kNvme, A::kNone, 1, 6, 32_MiB},
      {Shape::kLlama, P::kNvme, G::kNone, S::kCpu, A::kNvme, 1, 6, 16_MiB},
  };
}

shape::Decoder decoder_of(const Case& c) {
  shape::Decoder d = shape::find_preset("gpt2-124m");
  if (c.shape == Shape::kLlama) {
    d = shape::find_family("llama").base;
    d.vocab = 32000;
    d.hidden = 1024;
    d.heads = 16;
    d.kv_heads = 4;
    d.head_dim = 64;
    d.intermediate = 2816;
    d.max_positions = 1024;
    d.tied_embeddings = false;
  }
  d.layers = c.layers;
  return d;
}

schedule::Setup setup_of(const Case& c) {
  schedule::Setup setup = schedule::make_setup(shape::make_model(decoder_of(c)),
                                               {.offload_param = c.param,
                                                .offload_gradient = c.gradient,
                                                .offload_optimizer = c.state,
                                                .offload_activation = c.activation,
                                                .recompute = schedule::Recompute::kEveryLayer,
                                                .sub_group_size = c.chunk});
  setup.seq_len = 1024;
  setup.micro_batches = c.micro_batches;
  setup.workspace = 100_MiB;
  return setup;
}

/// Seconds of each step but the first two and the last, which has nothing after it.
std::vector<double> measure(const plan::Plan& plan, const CostModel& cost, std::size_t steps) {
  Sleeper sleeper(cost, plan.lanes);
  const auto driver = executor::overlapped(
      {.residents = plan.catalog.residents, .pools = plan.catalog.pools, .lanes = plan.lanes},
      sleeper);
  std::vector<Nanos> ends;
  const auto settle = [&](std::size_t in_flight) {
    for (const auto& finished : driver->wait(in_flight)) ends.push_back(finished.end);
  };
  for (std::size_t i = 0; i < steps + 3; ++i) {
    settle(1);
    driver->append(plan.programs.step, i);
  }
  settle(0);
  std::vector<double> seconds;
  for (std::size_t i = 2; i + 1 < ends.size(); ++i) {
    seconds.push_back(to_seconds(ends[i] - ends[i - 1]));
  }
  return seconds;
}

/// The ratio of the median step to the simulated one.
double run(const Case& c, std::size_t steps) {
  constexpr plan::Limits kPlenty{{1ULL << 50, 1ULL << 50, 1ULL << 50}, plan::kEndless};
  const schedule::Setup setup = setup_of(c);
  const auto lanes = schedule::make_lanes();
  const auto program = schedule::step_program(setup, schedule::make_catalog(setup));
  const CostModel cost = paced(*program, lanes);
  const plan::Plan plan = plan::make_plan(setup, kPlenty, 0, cost);
  const double serial = prefetch::serial_seconds(std::vector{plan.programs.step}, cost);
  const double simulated = plan.forecast.step_s;
  const double measured = median(measure(plan, cost, steps));
  fmt::print(
      "{:<58} {:>5} ops | serial {:.3f} s, simulated {:.3f} s ({:.2f}x) | measured {:.3f} s "
      "| {:.3f}\n",
      name_of(c), program->ops().size(), serial, simulated, serial / simulated, measured,
      measured / simulated);
  std::fflush(stdout);
  return measured / simulated;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  auto cases = sluice::cases();
  if (quick) cases.resize(3);
  double worst = 0;
  for (const auto& c : cases) worst = std::max(worst, sluice::run(c, quick ? 3 : 10));
  fmt::print("worst of {}: {:.3f}\n", cases.size(), worst);
}
