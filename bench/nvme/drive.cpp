/// What the nvme tier moves per second, through what a run uses: requests of 32 MiB, a few at a
/// time in each direction, striped over the folders by their speeds, with 32 blocks of each under
/// way (a run has aio.queue_depth of them).
///
///   drive SECONDS io_uring|libaio|threads read|write|mixed FOLDER...
///
/// One line of JSON: bytes per second read and written, and seconds of processors per 10^9 bytes.
#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "bench/nvme/tier.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/machine.h"
#include "nvme/aligned.h"
#include "nvme/store.h"

namespace sluice {
namespace {

constexpr Bytes kRequest = 32_MiB;
constexpr std::size_t kRequests = 32;  // of the tier: 1 GiB
constexpr std::size_t kAtATime = 4;

/// Requests of one direction, one after the other over the whole tier.
class Direction {
 public:
  Direction(nvme::Store& store, const std::vector<nvme::Extent>& extents, nvme::Op op)
      : store_(store),
        extents_(extents),
        op_(op),
        memory_(nvme::allocate_aligned(kAtATime * kRequest)) {
    std::memset(memory_.get(), 1, kAtATime * kRequest);
  }
  ~Direction() {
    for (const Ticket& ticket : in_flight_) ticket.wait_error();
  }

  std::span<std::byte> memory() { return {memory_.get(), kAtATime * kRequest}; }
  void fill() {
    while (in_flight_.size() < kAtATime) {
      const std::size_t n = asked_++;
      const std::span<std::byte> bytes{memory_.get() + n % kAtATime * kRequest, kRequest};
      // Half the tier lies between what is read and what is written.
      const nvme::Extent& extent =
          extents_[(n + (op_ == nvme::Op::kWrite ? kRequests / 2 : 0)) % kRequests];
      in_flight_.push_back(op_ == nvme::Op::kRead ? store_.read(extent, 0, bytes)
                                                  : store_.write(extent, 0, bytes));
    }
  }
  /// Waits for the oldest.
  void take() {
    in_flight_.front().wait();
    in_flight_.pop_front();
    last_ = now_ns();
    if (done_++ == 0) first_ = last_;
  }
  bool ready() const { return in_flight_.front().done(); }
  Bytes bytes() const { return done_ * kRequest; }
  /// Bytes per second from the end of the first request to that of the last: what is still in
  /// flight at the end would be missing otherwise.
  double rate() const {
    const double seconds = to_seconds(last_ - first_);
    return seconds > 0 ? static_cast<double>((done_ - 1) * kRequest) / seconds : 0;
  }

 private:
  nvme::Store& store_;
  const std::vector<nvme::Extent>& extents_;
  nvme::Op op_;
  nvme::AlignedBytes memory_;
  std::deque<Ticket> in_flight_;
  std::size_t asked_ = 0, done_ = 0;
  Nanos first_ = 0, last_ = 0;
};

void run(double seconds, nvme::Engine engine, const std::vector<nvme::Op>& ops,
         const std::vector<std::string>& folders) {
  nvme::Options options;
  options.engine = engine;
  options.queue_depth = 32;  // as many as fio has in beside_fio
  nvme::Store store(folders, kRequests * kRequest, options, nvme::AllowRam::kYes,
                    speeds_of(folders, options));
  std::vector<nvme::Extent> extents;
  for (std::size_t i = 0; i < kRequests; ++i) extents.push_back(store.allocate(kRequest));
  {  // space that was only reserved is paid for at the first write
    const nvme::AlignedBytes zero = nvme::allocate_aligned(kRequest);
    for (const nvme::Extent& extent : extents)
      store.write(extent, 0, {zero.get(), kRequest}).wait();
  }
  std::deque<Direction> directions;
  std::vector<std::span<std::byte>> memory;
  for (const nvme::Op op : ops) {
    memory.push_back(directions.emplace_back(store, extents, op).memory());
  }
  store.enrol(memory);
  const double processors = processor_seconds();
  const Nanos begin = now_ns();
  while (to_seconds(now_ns() - begin) < seconds) {
    for (Direction& direction : directions) direction.fill();
    bool any = false;
    for (Direction& direction : directions) {
      if (!direction.ready()) continue;
      direction.take();
      any = true;
    }
    if (!any) directions.front().take();
  }
  Bytes moved = 0;
  std::string text;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    moved += directions[i].bytes();
    text += fmt::format("\"{}\": {:.4g}, ", nvme::name_of(ops[i]), directions[i].rate());
  }
  fmt::print("{{{}\"cpu_s_per_gb\": {:.3g}, \"engine\": \"{}\"}}\n", text,
             (processor_seconds() - processors) / (static_cast<double>(moved) / 1e9),
             store.describe());
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;
  const std::map<std::string, std::vector<nvme::Op>> kinds = {
      {"read", {nvme::Op::kRead}},
      {"write", {nvme::Op::kWrite}},
      {"mixed", {nvme::Op::kRead, nvme::Op::kWrite}}};
  const auto engine = argc > 2 ? engine_named(argv[2]) : std::nullopt;
  const auto seconds = argc > 1 ? seconds_named(argv[1]) : std::nullopt;
  if (argc < 5 || !seconds || !engine || !kinds.contains(argv[3])) {
    fmt::print(stderr, "usage: drive SECONDS io_uring|libaio|threads read|write|mixed FOLDER...\n");
    return 2;
  }
  try {
    run(*seconds, *engine, kinds.at(argv[3]), {argv + 4, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
