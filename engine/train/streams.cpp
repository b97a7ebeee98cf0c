#include "engine/train/streams.h"

#include <utility>

namespace sluice::train {

Ticket Streams::run(const executor::OpContext& context, std::function<void()> work) {
  gpu::Stream& stream = *streams_.at(context.op.lane);
  for (const prefetch::OpRef before : context.stream_waits) stream.wait(event_of(before));
  const gpu::Event event = stream.run(std::move(work));
  if (streams_.size() > 1) note(context.ref, event);  // else nobody waits for it
  return event.ticket();
}

/// An empty one of an op that has been done since it was named.
gpu::Event Streams::event_of(prefetch::OpRef op) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(op);
  return found == events_.end() ? gpu::Event() : found->second;
}

void Streams::note(prefetch::OpRef op, const gpu::Event& event) {
  const std::lock_guard lock(mutex_);
  // One that failed stays: whoever waits for it must learn of that.
  std::erase_if(events_, [](const auto& other) {
    return other.second.done() && !other.second.ticket().wait_error();
  });
  events_.emplace(op, event);
}

}  // namespace sluice::train
