/// Runs a stream of programs on real threads, with handlers given from outside.
///
/// Two drivers, one contract: `overlapped` (workers per lane around a Scoreboard) and `serial` (op
/// by op, in program order, inside append()). Both give the same results; the serial one is the
/// first debugging tool.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/ticket.h"
#include "engine/base/trace.h"
#include "engine/executor/lane_time.h"
#include "prefetch/scoreboard.h"

namespace sluice::executor {

/// Root and slot of everything with bytes that an op names, sorted by root, without repeats.
using NamedSlots = std::vector<std::pair<prefetch::BufferId, std::uint32_t>>;
NamedSlots named_slots(const prefetch::Scoreboard& board, prefetch::OpRef ref);

/// The same error; one of a drive also says which op met it.
std::exception_ptr in_op(std::exception_ptr error, const prefetch::Scoreboard& board,
                         prefetch::OpRef ref);

/// Everything a handler may know about its op. Valid during start(); `program` and `op` live as
/// long as the caller keeps the program.
struct OpContext {
  prefetch::OpRef ref;
  const prefetch::Program& program;
  const prefetch::Op& op;
  std::uint64_t tag;  ///< as given to append()
  /// As of named_slots().
  std::span<const std::pair<prefetch::BufferId, std::uint32_t>> slots;
  /// Fifo lanes: enqueued ops of other streams that this op's stream must wait for.
  std::span<const prefetch::OpRef> stream_waits;

  /// The slot of a buffer or of a part's root. Throws kLogic when the op does not name it, or it
  /// has no bytes.
  std::uint32_t slot(prefetch::BufferId id) const;
};

/// Called from the lanes' threads, several at a time; ops that depend on each other never are.
/// A handler waits for nothing that is not in the program.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Fifo lanes: enqueues the work on the lane's stream and returns at once; the ticket is done
  /// when the stream has done it; tickets of one lane are done in order. Other lanes: does the
  /// work, or starts it and returns its ticket. An exception, or the ticket's error, ends the run.
  virtual Ticket start(const OpContext& context) = 0;
  /// A slot has become free; nothing reads or writes it until it is handed out again. Called under
  /// the driver's lock: short, and never back into the driver.
  virtual void freed(const prefetch::Freed&) {}
};

/// A program that has wholly run.
struct Finished {
  std::uint32_t instance;
  std::uint64_t tag;
  Nanos end;  ///< when its last op was completed
  // As of then, since the driver began:
  std::vector<LaneTime> lanes;
  std::vector<std::uint32_t> peak_slots;  ///< per pool, the most in use at once
};

/// An op whose handler was called, and which is not completed.
struct Running {
  prefetch::OpRef ref;
  const prefetch::Program* program = nullptr;  ///< lives as OpContext's does
  std::uint64_t tag = 0;
  NamedSlots slots;
  std::string lane;
  Nanos since = 0;  ///< it has run since then; on a stream, since that came to it

  /// What its handler was given, but for what its stream waits for. Valid as long as this is.
  OpContext context() const { return {ref, *program, program->ops()[ref.index], tag, slots, {}}; }
};

struct Resources {
  std::shared_ptr<const prefetch::Residents> residents;
  prefetch::Pools pools;
  prefetch::Lanes lanes;
  prefetch::Derivations derive{};
  /// Where each op's span goes when it is completed: track = lane, name = op kind, where = place(),
  /// cause = pack(). May be null; must outlive the driver.
  Trace* trace = nullptr;
};

/// An op in the stream as a span names it: the instance in the upper half, the index in the lower.
constexpr std::uint64_t place(prefetch::OpRef op) {
  return (static_cast<std::uint64_t>(op.instance) << 32) | op.index;
}
constexpr prefetch::OpRef placed(std::uint64_t where) {
  return {static_cast<std::uint32_t>(where >> 32), static_cast<std::uint32_t>(where)};
}
/// A cause as a span carries it.
constexpr std::uint64_t pack(prefetch::Cause cause) {
  return (static_cast<std::uint64_t>(cause.kind) << 32) | cause.which;
}
constexpr prefetch::Cause unpack_cause(std::uint64_t packed) {
  return {static_cast<prefetch::Cause::Kind>(packed >> 32), static_cast<std::uint32_t>(packed)};
}

/// Thread  append, wait and the destructor: one thread; stop() and running(): any
class Driver {
 public:
  virtual ~Driver() = default;

  /// Adds a sealed, checked program. After an error or stop() it adds nothing.
  virtual void append(std::shared_ptr<const prefetch::Program> program, std::uint64_t tag) = 0;
  /// Blocks until at most `in_flight` programs are unfinished; those finished since the last call,
  /// in stream order (one that overtook an older program is reported after it). Rethrows the first
  /// error, in every call, once everything in flight has ended. Throws kLogic when nothing can run
  /// any more: a program that was not checked.
  virtual std::vector<Finished> wait(std::size_t in_flight) = 0;
  /// Starts nothing more; what is in flight ends. wait() then throws kLogic if work was left (or
  /// refused by append()), unless an error came first. Handlers may call it.
  virtual void stop() noexcept = 0;
  /// What runs now, the longest first. Never waits for a handler; not for handlers to call.
  virtual std::vector<Running> running() const = 0;
};

/// The handler outlives the driver; the destructor stops, and waits for what is in flight.
std::unique_ptr<Driver> overlapped(const Resources& resources, Handler& handler);
std::unique_ptr<Driver> serial(const Resources& resources, Handler& handler);

}  // namespace sluice::executor
