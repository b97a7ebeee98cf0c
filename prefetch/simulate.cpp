#include "prefetch/simulate.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "engine/base/error.h"

namespace sluice::prefetch {
namespace {

/// What "runs" at one moment of the virtual clock.
class Clock {
 public:
  Clock(const Simulation& machine, std::span<const std::shared_ptr<const Program>> stream,
        const CostModel& cost, Observer* observer)
      : stream_(stream),
        cost_(cost),
        observer_(observer),
        max_in_flight_(machine.max_in_flight),
        board_(machine.residents, machine.pools, machine.lanes, machine.derive),
        queued_(machine.lanes.size()),
        in_use_(cost.resources.size(), 0.0),
        running_on_(machine.lanes.size(), 0) {
    line_.busy.assign(machine.lanes.size(), 0.0);
    line_.finished.assign(stream.size(), 0.0);
  }

  Timeline run() {
    while (true) {
      append();
      start();
      if (active_.empty()) break;
      advance();
    }
    SLUICE_CHECK(board_.idle() && appended_ == stream_.size(), kLogic,
                 "the simulated run is stuck: work is left and nothing can start");
    line_.seconds = now_;
    return std::move(line_);
  }

 private:
  struct Active {
    OpRef op;
    LaneId lane;
    const OpCost* cost;
    double begin;
    double left;  // seconds at full speed
  };

  void append() {
    while (appended_ < stream_.size() && board_.in_flight() < max_in_flight_) {
      const auto instance = board_.append(stream_[appended_++]);
      if (board_.finished(instance)) line_.finished[instance] = now_;  // it had no ops
    }
  }

  void start() {
    for (bool progress = true; progress;) {
      progress = false;
      for (LaneId lane = 0; lane < board_.lanes().size(); ++lane) {
        auto& queue = queued_[lane];
        while (const auto op = board_.next(lane)) {
          progress = true;
          if (board_.lanes()[lane].issue == Issue::kFifo) board_.issued(*op);
          queue.push_back(*op);
        }
        // Behind those before it, when the events that a stream waits for have been reached.
        while (!queue.empty() && running_on_[lane] < at_once(lane) &&
               board_.stream_waits(queue.front()).empty()) {
          begin(queue.front(), lane);
          queue.pop_front();
          progress = true;
        }
      }
    }
  }

  std::uint32_t at_once(LaneId lane) const {
    return board_.lanes()[lane].issue == Issue::kFifo ? 1 : cost_.lanes[lane].at_once;
  }

  void begin(OpRef op, LaneId lane) {
    if (observer_ != nullptr) observer_->begins(board_, op);
    const OpCost& cost = cost_.of(board_.op(op));
    for (const Demand& d : cost.demands) in_use_[d.resource] += d.share;
    ++running_on_[lane];
    active_.push_back({op, lane, &cost, now_, cost_.seconds(board_.op(op))});
  }

  double speed(const Active& a) const {
    double speed = 1.0;
    for (const Demand& d : a.cost->demands) {
      if (in_use_[d.resource] > 1.0) speed = std::min(speed, 1.0 / in_use_[d.resource]);
    }
    return speed;
  }

  void advance() {
    double step = std::numeric_limits<double>::infinity();
    std::size_t first = 0;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      const double need = active_[i].left / speed(active_[i]);
      if (need < step) {
        step = need;
        first = i;
      }
    }
    for (Active& a : active_) a.left = std::max(0.0, a.left - step * speed(a));
    for (LaneId lane = 0; lane < running_on_.size(); ++lane) {
      if (running_on_[lane] > 0) line_.busy[lane] += step;
    }
    now_ += step;
    end(first);
  }

  void end(std::size_t i) {
    const Active a = active_[i];
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    if (active_.empty()) {
      std::fill(in_use_.begin(), in_use_.end(), 0.0);  // no rounding is carried on
    } else {
      for (const Demand& d : a.cost->demands) in_use_[d.resource] -= d.share;
    }
    --running_on_[a.lane];
    line_.spans.push_back({a.op, a.lane, a.begin, now_});
    if (observer_ != nullptr) observer_->ends(board_, a.op);
    for (const Freed& freed : board_.completed(a.op)) {
      if (observer_ != nullptr) observer_->freed(freed);
    }
    if (board_.finished(a.op.instance)) line_.finished[a.op.instance] = now_;
  }

  std::span<const std::shared_ptr<const Program>> stream_;
  const CostModel& cost_;
  Observer* observer_;
  std::size_t max_in_flight_;
  Scoreboard board_;
  std::size_t appended_ = 0;
  double now_ = 0;
  std::vector<std::deque<OpRef>> queued_;  // per lane: started, its turn has not come
  std::vector<double> in_use_;             // per resource
  std::vector<std::uint32_t> running_on_;  // per lane
  std::vector<Active> active_;
  Timeline line_;
};

}  // namespace

Timeline simulate(const Simulation& machine, std::span<const std::shared_ptr<const Program>> stream,
                  const CostModel& cost, Observer* observer) {
  return Clock(machine, stream, cost, observer).run();
}

SteadyStep steady_step(const Simulation& machine, const std::shared_ptr<const Program>& step,
                       const CostModel& cost) {
  const std::vector<std::shared_ptr<const Program>> stream(kSteadySteps, step);
  Timeline line = simulate(machine, stream, cost);
  // The first step has nothing before it, the last nothing after it.
  const std::size_t last = kSteadySteps - 2;
  SteadyStep steady{line.finished[last] - line.finished[last - 1], std::move(line.busy)};
  for (double& busy : steady.busy) busy /= static_cast<double>(kSteadySteps);
  return steady;
}

double serial_seconds(std::span<const std::shared_ptr<const Program>> stream,
                      const CostModel& cost) {
  double seconds = 0;
  for (const auto& program : stream) {
    for (const Op& op : program->ops()) seconds += cost.seconds(op);
  }
  return seconds;
}

}  // namespace sluice::prefetch
