/// Runs a stream of serial programs out of order, within the memory there is: a pure state machine,
/// without threads and without a clock. The executor and the simulator drive the same one.
///
/// Grants   per pool, in program order: each pool hands its slots to the transients in the order in
///          which the program defines them. No op starts before every root it names is granted.
/// Order    an op starts after the earlier ops that wrote what it reads (read-after-write), and
///          that read or wrote what it writes (write-after-read, write-after-write).
/// Release  `issued` lets ops of fifo lanes follow (their stream waits on an event); `completed`
///          lets every lane follow, and frees memory.
/// Stuck    never, when prefetch::check() passed: see docs/design.md 3.4.
/// Streams  a fifo lane's ops are issued, and then completed, in the order in which next() gave
///          them.
/// Thread   one at a time; the executor holds a lock around it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "prefetch/program.h"

namespace sluice::prefetch {

/// An op in the stream: program instance, and index in that program.
struct OpRef {
  std::uint32_t instance = 0;
  std::uint32_t index = 0;
  friend bool operator==(const OpRef&, const OpRef&) = default;
  friend auto operator<=>(const OpRef&, const OpRef&) = default;
};

/// A root that has just been freed, and where it lay.
struct Freed {
  PoolId pool;
  std::uint32_t slot;
  Bytes bytes;
};

/// What an op waited for last: the event after which it could start.
struct Cause {
  enum class Kind : std::uint8_t {
    kStream,  ///< its program was appended, and nothing else was missing
    kLane,    ///< an op of lane `which` that it depends on was done
    kMemory   ///< pool `which` granted it a slot
  };
  Kind kind = Kind::kStream;
  std::uint32_t which = 0;
  friend bool operator==(const Cause&, const Cause&) = default;
};

/// The derivations, so that a test can leave one out and see the property tests fail.
struct Derivations {
  bool read_after_write = true;
  bool write_after_read = true;
  bool write_after_write = true;
  bool every_root_granted = true;
};

class Scoreboard {
 public:
  Scoreboard(std::shared_ptr<const Residents> residents, Pools pools, Lanes lanes,
             Derivations derive = {});

  /// A number of the driver's (its clock), kept with each op that the calls from now on make ready;
  /// nothing here depends on it.
  void stamp(std::int64_t now) { now_ = now; }

  /// Adds a sealed, checked program to the stream; its instance number (0, 1, 2, ...). Throws
  /// kLogic when it is not sealed, or was written for another table of persistents.
  std::uint32_t append(std::shared_ptr<const Program> program);

  /// What this lane may start now; the op then counts as started.
  std::optional<OpRef> next(LaneId lane);
  bool has_next(LaneId lane) const;
  /// Enqueued on its stream. Fifo lanes only; before completed().
  void issued(OpRef op);
  /// Really done. The transients that nobody names any more, freed by this.
  std::vector<Freed> completed(OpRef op);
  /// After an error: next() starts nothing more. What has started is still completed.
  void stop() { stopped_ = true; }

  /// Nothing has started that is not completed, and (unless stopped) nothing is left to start.
  bool idle() const;
  /// Work is left, nothing runs, and no lane may start anything: a program that check() would have
  /// refused, or a bug here. Drivers turn it into an error instead of a wait without end.
  bool stuck() const;
  /// Programs that are not wholly completed.
  std::size_t in_flight() const;
  bool finished(std::uint32_t instance) const;

  const Program& program(std::uint32_t instance) const { return *at(instance).program; }
  const Op& op(OpRef ref) const { return program(ref.instance).ops()[ref.index]; }
  /// The slot of a buffer's root: of a started op for transients, any time for persistents. Throws
  /// kLogic when the buffer has no bytes.
  std::uint32_t slot(OpRef ref, BufferId id) const;
  /// Ops of other fifo lanes, issued and not completed, that this op's stream must wait for.
  std::vector<OpRef> stream_waits(OpRef ref) const;

  /// Of an op that could start, and the stamp of that moment. On a stream the ops of other streams
  /// count when they are completed, although it is enqueued before; what an op before it on its
  /// stream waited for need not count.
  Cause cause(OpRef ref) const { return at(ref.instance).ops[ref.index].cause; }
  std::int64_t ready_since(OpRef ref) const { return at(ref.instance).ops[ref.index].since; }

  const Pools& pools() const { return pools_; }
  const Lanes& lanes() const { return lanes_; }
  std::uint32_t free_slots(PoolId pool) const {
    return static_cast<std::uint32_t>(free_[pool].size());
  }
  /// Orders between two ops that append() has noted so far, those left out that others imply: what
  /// appending costs.
  std::size_t edges() const { return edges_; }
  /// The most slots that were in use at once so far, persistents included.
  std::uint32_t peak_slots(PoolId pool) const { return peak_[pool]; }

 private:
  enum class State : std::uint8_t { kWaiting, kStarted, kIssued, kCompleted };
  struct LiveOp {
    State state = State::kWaiting;
    Cause cause;
    std::uint32_t blocked = 0;        // dependencies and grants still missing
    std::int64_t since = 0;           // when none was left
    std::vector<OpRef> followers;     // one entry per dependency of theirs on this op
    std::vector<OpRef> waiting;       // ops of other fifo lanes, released when this one was issued
    std::vector<OpRef> fifo_sources;  // ops of other fifo lanes that it depends on
  };
  struct Root {
    std::uint32_t slot = 0;
    std::uint32_t users = 0;
    std::uint32_t definer = 0;  // the first op of the program that names it
    bool granted = false;
    std::vector<std::uint32_t> waiters;  // ops of this program that name it
  };
  struct Instance {
    std::shared_ptr<const Program> program;
    std::vector<LiveOp> ops;
    std::vector<Root> roots;  // by BufferId - first transient
    std::size_t left = 0;     // ops not completed
  };
  struct Leaf {
    std::optional<OpRef> writer;
    // Who read since the last write, in stream order. Of each fifo lane only the last: it is
    // issued and completed after the others.
    std::vector<OpRef> hosts, streams;
  };
  struct Wanted {
    std::uint32_t instance;
    BufferId root;
  };

  Instance& at(std::uint32_t instance);
  const Instance& at(std::uint32_t instance) const;
  LiveOp& live(OpRef ref) { return at(ref.instance).ops[ref.index]; }
  void depend(OpRef op, OpRef on);
  void derive(OpRef op, std::vector<Leaf>& transient_leaves);
  bool behind_a_reader(OpRef op, const Leaf& leaf) const;
  void add_reader(Leaf& leaf, OpRef reader) const;
  void forget_finished(std::vector<OpRef>& readers) const;
  void grant(PoolId pool);
  void unblock(OpRef op, Cause cause);
  void reached(OpRef op, LaneId by);
  bool fifo(OpRef ref) const { return lanes_[op(ref).lane].issue == Issue::kFifo; }

  std::shared_ptr<const Residents> residents_;
  Pools pools_;
  Lanes lanes_;
  Derivations derive_;
  bool stopped_ = false;
  std::int64_t now_ = 0;
  std::uint32_t first_instance_ = 0;  // of the oldest program kept
  std::deque<Instance> instances_;
  std::vector<Leaf> leaves_;                      // of the persistents
  std::vector<std::uint32_t> resident_slots_;     // by BufferId
  std::vector<std::vector<std::uint32_t>> free_;  // per pool, the next slot last
  std::vector<std::uint32_t> peak_;               // per pool
  std::vector<std::deque<Wanted>> wanted_;        // per pool, in program order
  std::vector<std::deque<OpRef>> fifo_;           // per fifo lane, in program order
  using Oldest = std::priority_queue<OpRef, std::vector<OpRef>, std::greater<>>;
  std::vector<Oldest> ready_;          // per oldest-ready lane
  std::vector<std::uint32_t> active_;  // per lane, of its width
  std::size_t running_ = 0;            // started, not completed
  std::size_t edges_ = 0;
};

}  // namespace sluice::prefetch
