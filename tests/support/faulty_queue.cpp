#include "tests/support/faulty_queue.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "engine/base/error.h"

namespace sluice::test {
namespace {

// How long a request is held back for others to be shuffled with.
constexpr std::chrono::milliseconds kHold{2};

}  // namespace

bool FaultySeam::happens(double chance) {
  return chance > 0 && std::uniform_real_distribution<>(0, 1)(random_) < chance;
}

Bytes FaultySeam::ask(const nvme::Request& piece) {
  const std::lock_guard lock(mutex_);
  ++counts_.transfers;
  const Bytes step = piece.file->caching() == nvme::Caching::kDirect ? kAlignment : 1;
  if (piece.bytes <= step || !happens(faults_.short_transfers)) return piece.bytes;
  ++counts_.shorts;
  return step * std::uniform_int_distribution<Bytes>(1, (piece.bytes - 1) / step)(random_);
}

std::int64_t FaultySeam::answer(const nvme::Request& piece, std::int64_t result) {
  const std::lock_guard lock(mutex_);
  for (const Curse& curse : curses_) {
    const bool inside = piece.data >= curse.data && piece.data < curse.data + curse.bytes;
    const bool reads_only = curse.result == 0 || curse.result == kFlip;
    if (!inside || (reads_only && piece.op != nvme::Op::kRead)) continue;
    ++counts_.failures;
    if (curse.result == kFlip) {
      piece.data[piece.bytes / 2] ^= std::byte{16};
      return result;
    }
    return curse.result;
  }
  if (!happens(faults_.interrupts)) return result;
  ++counts_.interrupts;
  return happens(0.5) ? -EINTR : -EAGAIN;
}

void FaultySeam::curse(const nvme::Request& request, std::int64_t result) {
  const std::lock_guard lock(mutex_);
  curses_.push_back({request.data, request.bytes, result});
}

void FaultySeam::lift(const nvme::Request& request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(curses_, [&](const Curse& curse) { return curse.data == request.data; });
}

void FaultySeam::count_request() {
  const std::lock_guard lock(mutex_);
  ++counts_.requests;
}

FaultCounts FaultySeam::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

FaultyQueue::FaultyQueue(const nvme::Options& options, const Faults& faults)
    : faults_(faults),
      seam_(std::make_shared<FaultySeam>(faults)),
      inner_(nvme::make_queue(options, nvme::Caching::kDirect, seam_)),
      forwarder_([this] { forward(); }),
      reporter_([this] { report(); }) {}

Ticket FaultyQueue::submit(std::span<const nvme::Request> requests, std::shared_ptr<void> keep) {
  for (const nvme::Request& request : requests) nvme::check(request);
  const std::lock_guard lock(mutex_);
  SLUICE_CHECK(!closed_, kLogic, "an I/O request came after its queue was closed");
  const std::uint64_t number = submitted_++;
  seam_->count_request();
  for (const nvme::Request& request : requests) {
    if (number == faults_.fail_request) seam_->curse(request, -faults_.fail_errno);
    if (number == faults_.end_request) seam_->curse(request, 0);
    if (number == faults_.flip_request) seam_->curse(request, FaultySeam::kFlip);
    if (number == faults_.never_request) seam_->curse(request, nvme::KernelSeam::kNever);
  }
  TicketSource source(keep);
  Ticket ticket = source.ticket();
  held_.push_back(std::make_unique<Held>(
      Held{{requests.begin(), requests.end()},
           std::move(keep),
           std::move(source),
           Ticket(),
           number >= faults_.slow_from ? faults_.slow : std::chrono::microseconds(0)}));
  changed_.notify_all();
  return ticket;
}

void FaultyQueue::forward() {
  std::mt19937_64 random(faults_.seed);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !held_.empty() || closed_; });
    if (held_.empty()) break;
    changed_.wait_for(lock, faults_.reorder > 1 ? kHold : kHold * 0,
                      [this] { return held_.size() >= faults_.reorder || closed_; });
    HeldList batch = std::exchange(held_, {});
    lock.unlock();
    if (faults_.reorder > 1) std::shuffle(batch.begin(), batch.end(), random);
    for (const auto& held : batch) submit_to_inner(*held);
    lock.lock();
    std::move(batch.begin(), batch.end(), std::back_inserter(forwarded_));
    changed_.notify_all();
  }
  all_forwarded_ = true;
  changed_.notify_all();
}

void FaultyQueue::submit_to_inner(Held& held) {
  try {
    held.inner = inner_->submit(held.requests, std::move(held.keep));
  } catch (...) {
    held.source.fail(std::current_exception());  // report() then finds nothing left to say
  }
}

void FaultyQueue::report() {
  std::mt19937_64 random(faults_.seed);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !forwarded_.empty() || all_forwarded_; });
    if (forwarded_.empty()) return;
    const std::unique_ptr<Held> held = std::move(forwarded_.front());
    forwarded_.pop_front();
    lock.unlock();
    const std::exception_ptr error = held->inner.wait_error();
    std::uniform_int_distribution<std::int64_t> late(0, faults_.delay.count());
    std::this_thread::sleep_for(held->least_late + std::chrono::microseconds(late(random)));
    for (const nvme::Request& request : held->requests) seam_->lift(request);
    held->source.fail(error);
    lock.lock();
  }
}

void FaultyQueue::close() noexcept {
  std::call_once(closing_, [this] {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    forwarder_.join();
    reporter_.join();
    inner_->close();
  });
}

std::string FaultyQueue::describe() const {
  return "with faults: " + inner_->describe();
}

}  // namespace sluice::test
