#include "engine/bench/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"

namespace sluice::bench {

void require_same(const Target& target, const Pattern& pattern, Bytes offset,
                  std::span<const std::byte> memory) {
  const std::optional<Bytes> wrong = pattern.first_wrong(memory, offset);
  SLUICE_CHECK(!wrong, kIo,
               fmt::format("{}: at offset {} something else was read than was written there; do "
                           "not trust this drive with data, and see `dmesg`",
                           target.name(), wrong.value_or(0)));
}

Stream::Stream(Target& target, Pattern& pattern, std::span<std::byte> memory,
               const StreamOptions& options)
    : target_(target),
      pattern_(pattern),
      memory_(memory),
      options_(options),
      at_a_time_(memory.size() / options.request),
      at_(options.from % options.bytes) {
  SLUICE_CHECK((at_a_time_ + 1) * options.request <= options.bytes, kLogic,
               fmt::format("{} requests of {} at a time over {}", at_a_time_,
                           format_bytes(options.request), format_bytes(options.bytes)));
}

Bytes Stream::next_length() const {
  const Bytes most = std::min(options_.request, options_.most - asked_);
  if (!options_.staggered || sent_ >= at_a_time_) return most;
  const Bytes share = options_.request * (sent_ + 1) / at_a_time_;
  return std::min(most, round_up(share, options_.block));
}

/// A request that was shortened leaves out the rest of its place.
void Stream::send() {
  const Bytes offset = options_.begin + at_;
  const auto memory = memory_.subspan(sent_ % at_a_time_ * options_.request, next_length());
  if (options_.op == nvme::Op::kWrite) pattern_.stamp(memory, offset);
  in_flight_.push_back({target_.transfer(options_.op, offset, memory), offset, memory});
  at_ = (at_ + options_.request) % options_.bytes;
  asked_ += memory.size();
  ++sent_;
}

/// The oldest.
void Stream::take(const Look& look) {
  in_flight_.front().ticket.wait();
  last_.push_back(std::move(in_flight_.front()));
  in_flight_.pop_front();
  if (last_.size() > at_a_time_) last_.pop_front();
  if (look) look(last_.back().offset, last_.back().memory);
}

void Stream::run(const std::atomic<int>& over, const Look& look) {
  try {
    while (over == 0 && !(exhausted() && in_flight_.empty())) {
      while (in_flight_.size() < at_a_time_ && !exhausted()) send();
      take(look);
    }
    while (!in_flight_.empty()) take(look);
  } catch (...) {
    for (const Sent& sent : in_flight_) sent.ticket.wait_error();
    throw;
  }
}

Bytes Stream::check() const {
  Bytes compared = 0;
  for (const Sent& sent : last_) {
    require_same(target_, pattern_, sent.offset, sent.memory);
    compared += sent.memory.size();
  }
  return compared;
}

}  // namespace sluice::bench
