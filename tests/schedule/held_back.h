/// Runs a stream while some of its ops are held back for as long as anything else can run: the
/// order in which a missing dependency does the most harm.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prefetch/scoreboard.h"
#include "tests/support/op_memory.h"

namespace sluice::testing {

/// The scoreboard is told the declared programs; what the ops do to memory is what the real ones
/// say, op by op. Lanes start whatever is ready, so that only the scoreboard orders it.
class HeldBackRun {
 public:
  HeldBackRun(const RandomStream& real,
              const std::vector<std::shared_ptr<const prefetch::Program>>& declared,
              std::vector<prefetch::OpRef> held)
      : memory_(real, real.pools),
        board_(real.residents, real.pools, real.lanes),
        held_(std::move(held)),
        streams_(real.lanes.size()) {
    for (const auto& program : declared) board_.append(program);
  }

  /// Why the run is not as good as the serial one; empty when it is.
  std::string fault(const Results& serial) {
    while (true) {
      take();
      const auto op = choose();
      if (!op) break;
      run(*op);
      if (!memory_.complaint().empty()) return memory_.complaint();
    }
    if (!board_.idle()) return "the board is stuck";
    return memory_.results() == serial ? "" : "other results than the serial run";
  }

 private:
  void take() {
    for (prefetch::LaneId lane = 0; lane < board_.lanes().size(); ++lane) {
      while (const auto ref = board_.next(lane)) {
        if (board_.lanes()[lane].issue == prefetch::Issue::kFifo) {
          streams_[lane].push_back(*ref);
          board_.issued(*ref);
        } else {
          ready_.push_back(*ref);
        }
      }
    }
  }

  /// A stream runs its ops in order, when the events that they wait for have been reached.
  std::vector<prefetch::OpRef> runnable() const {
    std::vector<prefetch::OpRef> ops = ready_;
    for (const auto& stream : streams_) {
      if (!stream.empty() && board_.stream_waits(stream.front()).empty()) {
        ops.push_back(stream.front());
      }
    }
    return ops;
  }

  std::optional<prefetch::OpRef> choose() const {
    const auto ops = runnable();
    if (ops.empty()) return std::nullopt;
    const auto other = std::ranges::find_if(
        ops, [&](prefetch::OpRef ref) { return std::ranges::count(held_, ref) == 0; });
    return other != ops.end() ? *other : *std::ranges::min_element(ops);
  }

  void run(prefetch::OpRef ref) {
    const auto slot_of = [&](prefetch::BufferId root) { return board_.slot(ref, root); };
    memory_.begin(ref, slot_of);
    memory_.end(ref, slot_of);
    std::erase(ready_, ref);
    for (auto& stream : streams_) {
      if (!stream.empty() && stream.front() == ref) stream.pop_front();
    }
    for (const prefetch::Freed& freed : board_.completed(ref)) memory_.freed(freed);
  }

  OpMemory memory_;
  prefetch::Scoreboard board_;
  const std::vector<prefetch::OpRef> held_;
  std::vector<prefetch::OpRef> ready_;                // started on a lane of any order
  std::vector<std::deque<prefetch::OpRef>> streams_;  // per stream: issued, not completed
};

}  // namespace sluice::testing
