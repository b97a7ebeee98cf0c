/// Drives a scoreboard by chance: at every moment anything that may happen next is equally likely.
/// Finds orders that no cost model makes.
#pragma once

#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/op_memory.h"

namespace sluice::testing {

struct RandomOrder {
  std::uint64_t seed = 0;
  /// stop() after so many ops have begun.
  std::optional<std::size_t> stop_after;
  prefetch::Derivations derive{};
};

struct Outcome {
  bool drained = false;  ///< the board is idle, and every program was appended or it was stopped
  bool started_after_stop = false;
  std::vector<std::uint32_t> free_slots;  ///< per pool
};

class RandomOrderRun {
 public:
  RandomOrderRun(const RandomStream& stream, const prefetch::Pools& pools, OpMemory& memory,
                 const RandomOrder& order)
      : stream_(stream),
        memory_(memory),
        order_(order),
        engine_(order.seed),
        board_(stream.residents, pools, stream.lanes, order.derive),
        taken_(stream.lanes.size()),
        streams_(stream.lanes.size()) {}

  Outcome run() {
    while (const auto action = choose()) act(*action);
    Outcome outcome;
    outcome.drained = board_.idle() && (stopped_ || appended_ == stream_.programs.size());
    outcome.started_after_stop = started_after_stop_;
    for (prefetch::PoolId pool = 0; pool < board_.pools().size(); ++pool) {
      outcome.free_slots.push_back(board_.free_slots(pool));
    }
    return outcome;
  }

 private:
  enum class Step { kAppend, kNext, kIssue, kBegin, kEnd };
  struct Action {
    Step step;
    std::size_t which;  // a lane, or an index into begun_
  };
  struct Enqueued {
    prefetch::OpRef op;
    std::vector<prefetch::OpRef> waits;
    bool begun = false;
  };

  bool fifo(prefetch::OpRef ref) const {
    return stream_.lanes[board_.op(ref).lane].issue == prefetch::Issue::kFifo;
  }

  std::optional<Action> choose() {
    std::vector<Action> actions;
    if (!stopped_ && appended_ < stream_.programs.size() && board_.in_flight() < 2) {
      actions.push_back({Step::kAppend, 0});
    }
    for (std::size_t lane = 0; lane < stream_.lanes.size(); ++lane) {
      if (board_.has_next(static_cast<prefetch::LaneId>(lane))) {
        actions.push_back({Step::kNext, lane});
      }
      if (!taken_[lane].empty()) actions.push_back({Step::kIssue, lane});
      if (can_begin(lane)) actions.push_back({Step::kBegin, lane});
    }
    for (std::size_t i = 0; i < begun_.size(); ++i) actions.push_back({Step::kEnd, i});
    if (actions.empty()) return std::nullopt;
    return actions[engine_() % actions.size()];
  }

  /// A stream runs one op at a time, in order, when the events that it waits for have been reached.
  bool can_begin(std::size_t lane) const {
    if (streams_[lane].empty() || streams_[lane].front().begun) return false;
    for (const prefetch::OpRef wait : streams_[lane].front().waits) {
      if (!done(wait)) return false;
    }
    return true;
  }
  bool done(prefetch::OpRef ref) const {
    for (const auto& stream : streams_) {
      for (const Enqueued& enqueued : stream) {
        if (enqueued.op == ref) return false;
      }
    }
    return true;
  }

  void act(const Action& action) {
    switch (action.step) {
      case Step::kAppend:
        board_.append(stream_.programs[appended_++]);
        break;
      case Step::kNext:
        next(static_cast<prefetch::LaneId>(action.which));
        break;
      case Step::kIssue: {
        const prefetch::OpRef ref = taken_[action.which].front();
        taken_[action.which].pop_front();
        streams_[action.which].push_back({ref, board_.stream_waits(ref)});
        board_.issued(ref);
        break;
      }
      case Step::kBegin:
        streams_[action.which].front().begun = true;
        begin(streams_[action.which].front().op);
        break;
      case Step::kEnd: {
        const prefetch::OpRef ref = begun_[action.which];
        begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(action.which));
        end(ref);
        break;
      }
    }
  }

  void next(prefetch::LaneId lane) {
    const auto ref = board_.next(lane);
    started_after_stop_ |= stopped_;
    if (fifo(*ref)) {
      taken_[lane].push_back(*ref);
    } else {
      begin(*ref);
    }
  }

  void begin(prefetch::OpRef ref) {
    memory_.begin(ref, [&](prefetch::BufferId root) { return board_.slot(ref, root); });
    begun_.push_back(ref);
    if (order_.stop_after && memory_.begun() > *order_.stop_after) {
      board_.stop();
      stopped_ = true;
    }
  }

  void end(prefetch::OpRef ref) {
    memory_.end(ref, [&](prefetch::BufferId root) { return board_.slot(ref, root); });
    if (fifo(ref)) streams_[board_.op(ref).lane].pop_front();
    for (const prefetch::Freed& freed : board_.completed(ref)) memory_.freed(freed);
  }

  const RandomStream& stream_;
  OpMemory& memory_;
  const RandomOrder order_;
  std::mt19937_64 engine_;
  prefetch::Scoreboard board_;
  std::size_t appended_ = 0;
  bool stopped_ = false;
  bool started_after_stop_ = false;
  std::vector<std::deque<prefetch::OpRef>> taken_;  // per fifo lane: started, not issued
  std::vector<std::deque<Enqueued>> streams_;       // per fifo lane: issued, not completed
  std::vector<prefetch::OpRef> begun_;
};

}  // namespace sluice::testing
