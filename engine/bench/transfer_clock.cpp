#include "engine/bench/transfer_clock.h"

#include <algorithm>
#include <cmath>

namespace sluice::bench {
namespace {

/// So that the thread of a queue seldom has to move them.
constexpr std::size_t kUsualTransfers = 1 << 16;

/// The duration that `share` of them do not exceed. Needs one.
double percentile(std::vector<Nanos>& durations, double share) {
  const auto rank =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(durations.size())));
  const auto at = durations.begin() + static_cast<std::ptrdiff_t>(
                                          std::clamp<std::size_t>(rank, 1, durations.size()) - 1);
  std::nth_element(durations.begin(), at, durations.end());
  return to_seconds(*at);
}

}  // namespace

TransferClock::TransferClock(std::span<std::byte> read, std::span<std::byte> written) {
  of(nvme::Op::kRead).memory = read;
  of(nvme::Op::kWrite).memory = written;
  for (Direction& direction : directions_) {
    direction.asked.resize(direction.memory.size() / kAlignment);
    if (!direction.memory.empty()) direction.durations.reserve(kUsualTransfers);
  }
}

/// No two transfers that are under way have the same memory.
Nanos& TransferClock::asked_of(const nvme::Request& piece) {
  Direction& direction = of(piece.op);
  const auto place = static_cast<Bytes>(piece.data - direction.memory.data());
  return direction.asked.at(place / kAlignment);
}

Bytes TransferClock::ask(const nvme::Request& piece) {
  asked_of(piece) = now_ns();
  return piece.bytes;
}

std::int64_t TransferClock::answer(const nvme::Request& piece, std::int64_t result) {
  if (result <= 0) return result;
  const Nanos asked = asked_of(piece), now = now_ns();
  Direction& direction = of(piece.op);
  direction.moved += static_cast<Bytes>(result);
  if (asked < begin_ || now > end_) return result;
  const std::lock_guard lock(direction.mutex);
  direction.durations.push_back(now - asked);
  return result;
}

void TransferClock::begin() {
  begin_ = now_ns();
  for (Direction& direction : directions_) {
    const std::lock_guard lock(direction.mutex);
    direction.durations.clear();
  }
}

bool TransferClock::timed(nvme::Op op) const {
  const Direction& direction = of(op);
  const std::lock_guard lock(direction.mutex);
  return !direction.durations.empty();
}

Latency TransferClock::latency(nvme::Op op) const {
  const Direction& direction = of(op);
  std::vector<Nanos> durations;
  {
    const std::lock_guard lock(direction.mutex);
    durations = direction.durations;
  }
  if (durations.empty()) return {};
  return {percentile(durations, 0.5), percentile(durations, 0.99), percentile(durations, 0.999)};
}

}  // namespace sluice::bench
