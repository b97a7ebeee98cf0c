#include "nvme/speed.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <stop_token>
#include <thread>

#include "engine/base/clock.h"
#include "nvme/aligned.h"
#include "nvme/filesystem.h"
#include "nvme/io_queue.h"
#include "nvme/noise.h"
#include "nvme/store.h"

namespace sluice::nvme {
namespace {

constexpr std::size_t kRequests = 8;    // in memory and in the file, at least
constexpr std::size_t kMostFile = 256;  // requests; fewer where filling it takes too long
/// A drive that copies (a virtual one) is faster from and to memory that stays in caches, which a
/// run's does not.
constexpr std::size_t kMostMemory = 32;
constexpr double kFillSeconds = 1.0;
constexpr std::size_t kAtATime = 4;  // as many as a lane of the run has
static_assert(2 * kAtATime <= kRequests);
constexpr std::size_t kSingles = 5;
// Several requests at a time, until there were enough of them or it takes too long.
constexpr double kWarmSeconds = 0.1;
constexpr double kLeastSeconds = 0.2;
constexpr double kMostSeconds = 1.5;
constexpr std::size_t kEnoughRequests = 64;  // or all of a file that is larger
/// What fits into the smallest file is moved in a moment: its look is so much shorter.
constexpr double kShort = 0.1;
/// A drive that does less than this when it reads and writes was disturbed.
constexpr double kLeastOverlap = 0.25;
/// A drive that takes longer than this for each of two requests is not asked for several.
constexpr double kSlowSeconds = 0.1;

/// One file on one path, and what it is filled with.
class Look {
 public:
  Look(const std::string& path, const Options& options, Bytes stored)
      : most_(std::clamp<std::size_t>(stored / kLookedAt, kRequests, kMostFile)),
        slots_(std::min(most_, kMostMemory) / 2),
        memory_(allocate_aligned(2 * slots_ * kLookedAt)),
        file_(open_unnamed(nearest_existing(path), options.direct)) {
    fill_with_noise({memory_.get(), 2 * slots_ * kLookedAt}, 1);
    file_.preallocate(most_ * kLookedAt);
    queue_ = make_queue(options, file_.caching());
  }

  Rate rate(Op op) {
    const std::vector<double> one = singles(op);
    Rate rate{static_cast<double>(kLookedAt) / one[(one.size() - 1) / 2], 0};
    if (one.front() > kSlowSeconds) return rate;
    const auto over = [this](double seconds, std::size_t done) {
      return seconds > kMostSeconds || (seconds > part() * kLeastSeconds && done >= enough());
    };
    const auto ask = [&](std::size_t i) { return request(op, i % filled_, i); };
    rate.together = moved([&] { return sustained(ask, kAtATime, over); });
    rate.alone = std::min(rate.alone, rate.together);  // it came first: out of a cache, perhaps
    return rate;
  }
  /// See Speed. Each direction has a half of the file, for as long as the slower one needs. A step
  /// reads as much as it writes, so they take turns here: a virtual drive that writes twice as fast
  /// as it reads moves up to a fifth more where each may do what it can.
  double overlap(const Speed& alone, const std::function<void()>& beside) {
    const double r = alone.read.together, w = alone.write.together;
    if (r == 0 || w == 0) return 1;  // too slow to be asked
    const double wanted = static_cast<double>(enough() * kLookedAt) / std::min(r, w);
    const double most = std::clamp(wanted, part() * kLeastSeconds, kMostSeconds);
    const auto over = [most](double seconds, std::size_t) { return seconds > most; };
    const std::size_t half = filled_ / 2;
    const auto ask = [this, half](std::size_t i) {
      const std::size_t at = i / 2;
      return i % 2 == 0 ? request(Op::kRead, half + at % half, at)
                        : request(Op::kWrite, at % half, at);
    };
    std::jthread other;  // its destructor stops it
    if (beside) {
      other = std::jthread([&beside](const std::stop_token& ended) {
        while (!ended.stop_requested()) beside();
      });
    }
    const double both = moved([&] { return sustained(ask, 2 * kAtATime, over); });
    return overlap_of(both, alone);
  }
  /// Of all that was looked at so far.
  double spread() const { return spread_; }
  /// Space that was only reserved is paid for at the first write.
  void fill() {
    const Nanos begin = now_ns();
    const auto time_left = [&] { return to_seconds(now_ns() - begin) < kFillSeconds; };
    while (filled_ < most_ && (filled_ < kRequests || time_left())) {
      request(Op::kWrite, filled_, filled_).wait();
      ++filled_;
    }
  }

 private:
  /// Its spread is kept.
  double moved(const std::function<Moved()>& look) {
    if (is_short()) return look().whole;
    const Moved moved = steadiest(look);
    spread_ = std::max(spread_, moved.spread());
    return moved.whole;
  }

  template <class Work>
  static double seconds_of(const Work& work) {
    const Nanos begin = now_ns();
    work();
    return std::max(to_seconds(now_ns() - begin), 1e-9);
  }

  /// Seconds of one request, a few times, sorted; of two where both were slow.
  std::vector<double> singles(Op op) {
    std::vector<double> seconds;
    const auto slow = [&] { return seconds.size() == 2 && seconds.front() > kSlowSeconds; };
    while (seconds.size() < kSingles && !slow()) {
      const std::size_t i = seconds.size();
      seconds.push_back(seconds_of([&] { request(op, i, i).wait(); }));
      std::ranges::sort(seconds);
    }
    return seconds;
  }

  bool is_short() const { return most_ == kRequests; }
  double part() const { return is_short() ? kShort : 1; }  // of a long look's times
  std::size_t enough() const { return is_short() ? filled_ : std::max(kEnoughRequests, filled_); }

  /// The `turn`th of those in flight. Reads and writes at once have memory of their own.
  Ticket request(Op op, std::size_t i, std::size_t turn) {
    const std::size_t slot = turn % slots_ + (op == Op::kRead ? slots_ : 0);
    std::byte* memory = memory_.get() + slot * kLookedAt;
    return queue_->submit({op, &file_, i * kLookedAt, memory, kLookedAt});
  }

  /// Of requests that `ask` makes, each the next one, once the first burst is over. A slow drive is
  /// asked for longer: one that answers in bursts of a tenth of a second says little in two of
  /// them. `over` is asked how long it has gone on, and how many requests that were.
  template <class Ask, class Over>
  Moved sustained(const Ask& ask, std::size_t at_a_time, const Over& over) {
    std::deque<Ticket> in_flight;
    std::size_t asked = 0;
    const Nanos begin = now_ns();
    Nanos now = begin;
    std::vector<Nanos> done;  // when each was, the first of them before those that count
    const auto enough = [&] {
      if (done.size() <= at_a_time) return false;
      return over(to_seconds(now - done.front()), done.size() - 1);
    };
    while (!enough()) {
      while (in_flight.size() < at_a_time) in_flight.push_back(ask(asked++));
      in_flight.front().wait();
      in_flight.pop_front();
      now = now_ns();
      const bool warm = to_seconds(now - begin) > part() * kWarmSeconds;
      if (warm || !done.empty()) done.push_back(now);
    }
    for (const Ticket& ticket : in_flight) ticket.wait();
    const auto rate = [&done](std::size_t from, std::size_t to) {
      return static_cast<double>((to - from) * kLookedAt) / to_seconds(done[to] - done[from]);
    };
    const std::size_t last = done.size() - 1;
    return {rate(0, last), rate(0, last / 2), rate(last / 2, last)};
  }

  const std::size_t most_;   // requests in the file
  const std::size_t slots_;  // in memory, of each direction
  std::size_t filled_ = 0;   // of them, those that were written
  AlignedBytes memory_;
  File file_;
  double spread_ = 0;
  std::unique_ptr<IoQueue> queue_;  // last, so that it drains first
};

void add(Rate& sum, const Rate& rate) {
  sum.alone += rate.alone;
  sum.together += std::max(rate.alone, rate.together);
}

Speed part_of(const Speed& speed, double share) {
  const auto rate = [&](const Rate& r) { return Rate{r.alone * share, r.together * share}; };
  return {rate(speed.read), rate(speed.write), speed.overlap, speed.spread};
}

}  // namespace

double Moved::spread() const {
  return std::max(first, second) / std::min(first, second) - 1;
}

Moved steadiest(const std::function<Moved()>& look) {
  Moved best = look();
  for (int looks = 1; looks < kLooks && best.spread() > kSteady; ++looks) {
    const Moved next = look();
    if (next.spread() < best.spread()) best = next;
  }
  return best;
}

double overlap_of(double moved, const Speed& alone) {
  const double seconds = 1 / alone.read.together + 1 / alone.write.together;  // a byte each way
  return std::clamp(moved / 2 * seconds, kLeastOverlap, 2.0);
}

double Speed::both() const {
  const double r = std::max(read.alone, read.together);
  const double w = std::max(write.alone, write.together);
  return 1 / std::max({1 / r, 1 / w, (1 / r + 1 / w) / overlap});
}

std::vector<Speed> look_at(const std::vector<std::string>& paths, const Options& options,
                           Bytes stored, const std::function<void()>& beside) {
  std::vector<Filesystem> filesystems;
  std::map<std::uint64_t, std::size_t> paths_of;
  for (const std::string& path : paths) {
    ++paths_of[filesystems.emplace_back(filesystem_of(path)).device];
  }
  std::map<std::uint64_t, Speed> drives;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::uint64_t drive = filesystems[i].device;
    if (drives.contains(drive)) continue;
    const Bytes there = stored / paths.size() * paths_of[drive];
    Look look(paths[i], options, std::min(there, filesystems[i].free / 4));
    look.fill();
    const Rate write = look.rate(Op::kWrite);
    Speed speed{look.rate(Op::kRead), write};
    speed.overlap = look.overlap(speed, beside);
    speed.spread = look.spread();
    drives[drive] = speed;
  }
  std::vector<Speed> speeds;
  for (const Filesystem& of : filesystems) {
    const auto sharers = static_cast<double>(paths_of.at(of.device));
    speeds.push_back(part_of(drives.at(of.device), 1 / sharers));
  }
  return speeds;
}

Speed together(const std::vector<Speed>& speeds) {
  Speed all;
  double both = 0, overlap = 0;  // each counts as much as it moves
  for (const Speed& speed : speeds) {
    add(all.read, speed.read);
    add(all.write, speed.write);
    both += speed.both();
    overlap += speed.overlap * speed.both();
    all.spread = std::max(all.spread, speed.spread);
  }
  all.overlap = overlap / both;
  return all;
}

}  // namespace sluice::nvme
