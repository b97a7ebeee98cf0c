/// A drive having a bad day: a queue that injects faults where the real code has to cope.
#pragma once

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nvme/io_queue.h"

namespace sluice::test {

/// Which faults, how often. Chances are 0 to 1, per transfer; requests are counted from 0 in the
/// order of submit(), one per ticket.
struct Faults {
  std::uint64_t seed = 1;
  double short_transfers = 0;                      ///< the kernel is asked for only a part
  double interrupts = 0;                           ///< EINTR or EAGAIN instead of the answer
  std::optional<std::uint64_t> fail_request = {};  ///< this one fails with `fail_errno`
  int fail_errno = EIO;
  std::optional<std::uint64_t> end_request = {};    ///< in this one reads meet the end of the file
  std::optional<std::uint64_t> never_request = {};  ///< this one does not end
  std::optional<std::uint64_t> flip_request = {};   ///< a bit of what this one reads is wrong
  unsigned reorder = 1;                             ///< so many requests are held back and shuffled
  std::chrono::microseconds delay{0};               ///< completions are late by up to this
  std::uint64_t slow_from = 0;                      ///< and from this request on
  std::chrono::microseconds slow{0};                ///< by at least this
};

/// What really was injected: a test that saw none has proved nothing.
struct FaultCounts {
  std::uint64_t requests = 0;
  std::uint64_t transfers = 0;
  std::uint64_t shorts = 0;
  std::uint64_t interrupts = 0;
  std::uint64_t failures = 0;  ///< transfers that were told an error or an early end
};

/// Short transfers, interrupts and errors are injected between the queue and the kernel
/// (nvme::KernelSeam), so that the real queue's code meets them; shuffling and delays in front.
///
/// Thread  any
class FaultySeam final : public nvme::KernelSeam {
 public:
  explicit FaultySeam(const Faults& faults) : faults_(faults), random_(faults.seed) {}

  Bytes ask(const nvme::Request& piece) override;
  std::int64_t answer(const nvme::Request& piece, std::int64_t result) override;

  /// Result of a curse that lets reads arrive, with a wrong bit.
  static constexpr std::int64_t kFlip = nvme::KernelSeam::kNever + 1;
  /// From now on transfers of this memory get `result` (0 for the early end, of reads alone).
  void curse(const nvme::Request& request, std::int64_t result);
  void lift(const nvme::Request& request);
  void count_request();
  FaultCounts counts() const;

 private:
  struct Curse {
    const std::byte* data;
    Bytes bytes;
    std::int64_t result;
  };
  bool happens(double chance);

  const Faults faults_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Curse> curses_;
  FaultCounts counts_;
};

/// A real queue behind the faults; give it to nvme::Store in place of its own.
class FaultyQueue final : public nvme::IoQueue {
 public:
  FaultyQueue(const nvme::Options& options, const Faults& faults);
  ~FaultyQueue() override { close(); }

  using IoQueue::submit;
  Ticket submit(std::span<const nvme::Request> requests, std::shared_ptr<void> keep) override;
  void close() noexcept override;
  std::string describe() const override;

  /// Shared, so that it can be asked after the queue has gone.
  std::shared_ptr<const FaultySeam> seam() const { return seam_; }
  FaultCounts counts() const { return seam_->counts(); }

 private:
  struct Held {
    std::vector<nvme::Request> requests;
    std::shared_ptr<void> keep;
    TicketSource source;
    Ticket inner;
    std::chrono::microseconds least_late;
  };
  using HeldList = std::deque<std::unique_ptr<Held>>;
  void forward();
  void submit_to_inner(Held& held);
  void report();

  const Faults faults_;
  const std::shared_ptr<FaultySeam> seam_;
  const std::unique_ptr<nvme::IoQueue> inner_;

  std::mutex mutex_;  // guards everything up to closed_
  std::condition_variable changed_;
  HeldList held_;       // not yet submitted to inner_
  HeldList forwarded_;  // submitted; reported in this order
  std::uint64_t submitted_ = 0;
  bool closed_ = false;
  bool all_forwarded_ = false;

  std::once_flag closing_;
  std::thread forwarder_;
  std::thread reporter_;
};

}  // namespace sluice::test
