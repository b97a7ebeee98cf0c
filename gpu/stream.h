/// Queues of work on the device, and points in them.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/base/ticket.h"
#include "engine/base/units.h"

namespace sluice::gpu {

/// A point in a stream; reached when everything enqueued before it has ended.
///
/// Owns    nothing that runs: may outlive its stream, may be dropped at any time
/// Thread  any; copies name the same point
class Event {
 public:
  /// An empty event has been reached, without error.
  Event() = default;

  bool done() const { return ticket_.done(); }
  /// What a host thread waits on. Carries the error of the stream at this point, if it has one,
  /// and says when the stream reached the copy or work, and when that ended: within the time of a
  /// thread's wake-up, if the device counts time by itself.
  Ticket ticket() const { return ticket_; }

 private:
  friend class Stream;
  friend double seconds_between(const Event&, const Event&);
  struct State;  // the backend's, if it has one
  explicit Event(Ticket ticket, std::shared_ptr<State> state = nullptr)
      : ticket_(std::move(ticket)), state_(std::move(state)) {}
  Ticket ticket_;
  std::shared_ptr<State> state_;
};

/// From `begin` to `end` by the device's own clock: from where the device got to the one until it
/// got to the other. Both have been reached, and are not empty. What is to be measured stands
/// between two record()s: an event of the work before may have been reached long ago.
///
/// Throws  kLogic when one of them was not reached, or is empty; kDevice
double seconds_between(const Event& begin, const Event& end);

/// Work that the device does in the order in which it was enqueued. Streams run beside each other.
///
/// Errors  the first one - of a work, or of an event waited on - stays: the stream skips every
///         later copy and work, and all its later events carry that error. It still keeps its
///         waits, so that an event never comes before what it stands behind. There is no way
///         back: an error ends the run
/// Owns    no buffer: whatever a copy or a work touches must live until its event is done
/// Thread  any; calls of several threads are ordered as they come. No call waits for the device,
///         except the destructor, which no work of this stream may run
class Stream {
 public:
  /// `lane` names it in traces and debuggers.
  /// Throws  kEnv when the system has no thread for it, kDevice when the device refuses
  explicit Stream(std::string_view lane);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) = delete;
  /// Drains: all that was enqueued has ended, errors included.
  ~Stream();

  /// Either side may be device, pinned or plain memory. Where one is plain, or neither is of the
  /// device, all may be over before the call returns.
  /// Throws  kLogic when the two overlap
  Event copy(void* dst, const void* src, Bytes n);

  /// Host: this stream's own thread calls `work`. CUDA: it is called now, by the caller, with this
  /// stream current, and what it launches is the work. So a work waits for nothing that its caller
  /// does later. What it holds is dropped before its event is reached; what it throws goes into the
  /// event.
  Event run(std::function<void()> work);

  /// Everything enqueued so far, and not before the call.
  Event record();

  /// What is enqueued from now on starts after `e`; the caller goes on. Events exist only once they
  /// are enqueued, so streams that wait for each other cannot lock up.
  void wait(const Event& e);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::gpu
