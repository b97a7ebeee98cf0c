#include "nvme/speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <set>

#include "engine/base/clock.h"
#include "nvme/aligned.h"
#include "nvme/filesystem.h"
#include "nvme/io_queue.h"
#include "nvme/store.h"

namespace sluice::nvme {
namespace {

constexpr std::size_t kRequests = 8;  // in the file
constexpr std::size_t kAtATime = 4;   // as many as a lane of the run has
constexpr double kLookSeconds = 0.3;
/// A drive that takes longer than this for one request is not asked for several.
constexpr double kSlowSeconds = 0.1;

/// One file on one path, and what it is filled with.
class Look {
 public:
  Look(const std::string& path, const Options& options)
      : memory_(allocate_aligned(kRequests * kLookedAt)),
        file_(open_unnamed(nearest_existing(path), options.direct)) {
    std::memset(memory_.get(), 1, kRequests * kLookedAt);
    file_.preallocate(kRequests * kLookedAt);
    queue_ = make_queue(options, file_.caching());
  }

  Rate rate(Op op) {
    const double one = seconds_of([&] { request(op, 0).wait(); });
    Rate rate{static_cast<double>(kLookedAt) / one, 0};
    if (one > kSlowSeconds) return rate;
    rate.together = sustained(op);
    rate.alone = std::min(rate.alone, rate.together);  // it came first: out of a cache, perhaps
    return rate;
  }
  /// Space that was only reserved is paid for at the first write.
  void fill() {
    for (std::size_t i = 0; i < kRequests; ++i) request(Op::kWrite, i).wait();
  }

 private:
  template <class Work>
  static double seconds_of(const Work& work) {
    const Nanos begin = now_ns();
    work();
    return std::max(to_seconds(now_ns() - begin), 1e-9);
  }

  Ticket request(Op op, std::size_t i) {
    const Bytes offset = i % kRequests * kLookedAt;
    return queue_->submit({op, &file_, offset, memory_.get() + offset, kLookedAt});
  }

  /// From the first third of the look on: by then bursts that a drive allows are over.
  double sustained(Op op) {
    std::deque<Ticket> in_flight;
    std::size_t asked = 0, done = 0;
    const Nanos begin = now_ns();
    Nanos from = 0, now = begin;
    while (to_seconds(now - begin) < kLookSeconds || done < kAtATime) {
      while (in_flight.size() < kAtATime) in_flight.push_back(request(op, asked++));
      in_flight.front().wait();
      in_flight.pop_front();
      now = now_ns();
      if (from != 0) {
        ++done;
      } else if (to_seconds(now - begin) > kLookSeconds / 3) {
        from = now;
      }
    }
    const double rate = static_cast<double>(done * kLookedAt) / to_seconds(now - from);
    for (const Ticket& ticket : in_flight) ticket.wait();
    return rate;
  }

  AlignedBytes memory_;
  File file_;
  std::unique_ptr<IoQueue> queue_;  // last, so that it drains first
};

void add(Rate& sum, const Rate& rate) {
  sum.alone += rate.alone;
  sum.together += std::max(rate.alone, rate.together);
}

}  // namespace

double Speed::both() const {
  const double r = std::max(read.alone, read.together);
  const double w = std::max(write.alone, write.together);
  return 1 / (1 / r + 1 / w);
}

std::vector<Speed> look_at(const std::vector<std::string>& paths, const Options& options) {
  std::vector<Speed> speeds;
  for (const std::string& path : paths) {
    Look look(path, options);
    look.fill();
    const Rate write = look.rate(Op::kWrite);
    speeds.push_back({look.rate(Op::kRead), write});
  }
  return speeds;
}

Speed together(const std::vector<std::string>& paths, const std::vector<Speed>& speeds) {
  Speed all;
  std::set<std::uint64_t> drives;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!drives.insert(filesystem_of(paths[i]).device).second) continue;
    add(all.read, speeds[i].read);
    add(all.write, speeds[i].write);
  }
  return all;
}

}  // namespace sluice::nvme
