#include "prefetch/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

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
    double left;    // seconds at full speed
    double behind;  // of the lane's work, until it may have a turn
    double speed;   // 1: full
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
        while (!queue.empty() && running_on_[lane] < begun_at_once(lane) &&
               board_.stream_waits(queue.front()).empty()) {
          begin(queue.front(), lane);
          queue.pop_front();
          progress = true;
        }
      }
    }
  }

  std::uint32_t begun_at_once(LaneId lane) const {
    if (board_.lanes()[lane].issue == Issue::kFifo) return 1;
    const LaneCost& cost = cost_.lanes[lane];
    return cost.turn == Turn::kInOrder ? cost.at_once : std::numeric_limits<std::uint32_t>::max();
  }

  void begin(OpRef op, LaneId lane) {
    if (observer_ != nullptr) observer_->begins(board_, op);
    const OpCost& cost = cost_.of(board_.op(op));
    const double behind = under_way(lane);
    ++running_on_[lane];
    active_.push_back({op, lane, &cost, now_, cost_.seconds(board_.op(op)), behind, 1.0});
  }

  /// Of those that have the turn now, what another cannot overtake.
  double under_way(LaneId lane) const {
    const LaneCost& cost = cost_.lanes[lane];
    if (cost.turn == Turn::kInOrder || running_on_[lane] < cost.at_once) return 0;
    double left = 0;
    for (const Active& a : active_) {
      if (a.lane == lane && has_turn(a)) left += a.left;
    }
    return std::min(cost.in_flight_s, left);
  }

  /// Those whose turn it is. The others stand still.
  void see_who_works() {
    open_.clear();
    for (Active& a : active_) {
      a.speed = 0;
      if (has_turn(a)) open_.push_back(&a);
    }
  }

  bool has_turn(const Active& a) const {
    const LaneCost& lane = cost_.lanes[a.lane];
    if (lane.turn == Turn::kInOrder) return true;  // it was begun in its turn
    const auto before = std::ranges::count_if(active_, [&](const Active& other) {
      return other.lane == a.lane && &other != &a && comes_before(other, a);
    });
    return before < lane.at_once;
  }

  /// Of two with as much left the first has its turn.
  static bool comes_before(const Active& a, const Active& b) {
    if ((a.behind > 0) != (b.behind > 0)) return b.behind > 0;
    return a.left < b.left || (a.left == b.left && &a < &b);
  }

  void see_what_is_free() {
    free_.assign(cost_.resources.size(), 1.0);
    asked_by_.assign(cost_.resources.size(), std::nullopt);
    for (const Active* a : open_) {
      for (const Demand& d : a->cost->demands) {
        if (d.share <= 0) continue;
        if (asked_by_[d.resource].value_or(a->lane) != a->lane) {
          free_[d.resource] = cost_.resources[d.resource].shared;
        }
        asked_by_[d.resource] = a->lane;
      }
    }
  }

  /// All get faster together, each by its weight, until a resource is used up or an op has its full
  /// speed; those stay there, and the others share what is left of theirs.
  void set_speeds() {
    see_who_works();
    see_what_is_free();
    while (!open_.empty()) {
      asked_.assign(cost_.resources.size(), 0.0);
      double level = std::numeric_limits<double>::infinity();
      for (const Active* a : open_) {
        level = std::min(level, 1 / a->cost->weight);
        for (const Demand& d : a->cost->demands) {
          asked_[d.resource] += d.share * a->cost->weight;
        }
      }
      std::size_t scarcest = free_.size();
      for (std::size_t r = 0; r < free_.size(); ++r) {
        if (asked_[r] * level <= free_[r]) continue;
        level = free_[r] / asked_[r];
        scarcest = r;
      }
      const auto stays = [&](const Active* a) {
        if (scarcest == free_.size()) return 1 / a->cost->weight <= level;
        return std::ranges::any_of(a->cost->demands, [&](const Demand& d) {
          return d.resource == scarcest && d.share > 0;
        });
      };
      for (Active* a : open_) {
        if (!stays(a)) continue;
        a->speed = std::min(1.0, a->cost->weight * level);
        for (const Demand& d : a->cost->demands) {
          free_[d.resource] = std::max(0.0, free_[d.resource] - d.share * a->speed);
        }
      }
      std::erase_if(open_, stays);
    }
  }

  void advance() {
    set_speeds();
    see_how_fast_lanes_work();
    double step = std::numeric_limits<double>::infinity();
    const std::size_t none = active_.size();
    std::size_t first = none;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      const double need = active_[i].left / active_[i].speed;
      if (need < step) {
        step = need;
        first = i;
      }
    }
    SLUICE_CHECK(std::isfinite(step), kLogic, "an op of the simulated run never ends");
    if (const double turn = next_turn(); turn < step) {
      step = turn;
      first = none;
    }
    for (Active& a : active_) {
      a.left = std::max(0.0, a.left - step * a.speed);
      a.behind = behind_for(a) <= step ? 0 : a.behind - step * works_[a.lane];
    }
    for (LaneId lane = 0; lane < running_on_.size(); ++lane) {
      if (running_on_[lane] > 0) line_.busy[lane] += step;
    }
    now_ += step;
    if (first != none) end(first);
  }

  void see_how_fast_lanes_work() {
    works_.assign(running_on_.size(), 0.0);
    for (const Active& a : active_) works_[a.lane] += a.speed;
  }

  /// Seconds until one that is behind others no longer is.
  double next_turn() const {
    double next = std::numeric_limits<double>::infinity();
    for (const Active& a : active_) {
      if (a.behind > 0) next = std::min(next, behind_for(a));
    }
    return next;
  }
  double behind_for(const Active& a) const { return a.behind / works_[a.lane]; }

  void end(std::size_t i) {
    const Active a = active_[i];
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
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
  std::vector<std::uint32_t> running_on_;  // per lane
  std::vector<double> works_;              // per lane: the speeds of its ops, added up
  std::vector<Active> active_;
  // Of set_speeds(): those without a speed yet; what is left of each resource, and asked of it.
  std::vector<Active*> open_;
  std::vector<double> free_, asked_;
  std::vector<std::optional<LaneId>> asked_by_;  // of each resource: by the last of the ops
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
  SteadyStep steady{(line.finished[kLastSteady] - line.finished[kFirstSteady - 1]) / kCountedSteps,
                    std::move(line.busy)};
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
