/// The device's streams behind the fifo lanes. What an op needs of other streams it waits for
/// there, by events: the host never does.
///
/// Thread  add(): before the run; run(): the lanes' threads
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "engine/executor/driver.h"
#include "gpu/stream.h"

namespace sluice::train {

class Streams {
 public:
  /// The stream must outlive this.
  void add(prefetch::LaneId lane, gpu::Stream& stream) { streams_[lane] = &stream; }
  bool has(prefetch::LaneId lane) const { return streams_.contains(lane); }

  /// Enqueues the work of an op on its lane's stream, behind the ops that the context names. Its
  /// ticket is done when the stream has done it.
  Ticket run(const executor::OpContext& context, std::function<void()> work);

 private:
  gpu::Event event_of(prefetch::OpRef op);
  void note(prefetch::OpRef op, const gpu::Event& event);

  std::map<prefetch::LaneId, gpu::Stream*> streams_;
  std::mutex mutex_;
  std::map<prefetch::OpRef, gpu::Event> events_;  // of ops that may not have been done yet
};

}  // namespace sluice::train
