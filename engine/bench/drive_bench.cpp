#include "engine/bench/drive_bench.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/machine.h"
#include "engine/bench/stream.h"
#include "engine/bench/summary.h"
#include "engine/bench/transfer_clock.h"

namespace sluice::bench {
namespace {

constexpr double kWarmUp = 0.2;  // of a box
/// How often the one who watches looks.
constexpr std::chrono::milliseconds kTick{2};

std::vector<nvme::Op> ops_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::kRead:
      return {nvme::Op::kRead};
    case Traffic::kWrite:
      return {nvme::Op::kWrite};
    case Traffic::kMixed:
      return {nvme::Op::kRead, nvme::Op::kWrite};
  }
  return {};
}

struct Moment {
  Nanos time = 0;
  Bytes read = 0, written = 0;
  double processors = 0;
};

Measured between(const Moment& from, const Moment& until) {
  Measured measured;
  measured.seconds = std::max(to_seconds(until.time - from.time), 1e-9);
  measured.read_bytes = until.read - from.read;
  measured.written_bytes = until.written - from.written;
  measured.read_rate = static_cast<double>(measured.read_bytes) / measured.seconds;
  measured.write_rate = static_cast<double>(measured.written_bytes) / measured.seconds;
  const auto moved = static_cast<double>(measured.read_bytes + measured.written_bytes);
  if (moved > 0) {
    measured.cpu_s_per_gb = (until.processors - from.processors) / (moved / 1e9);
  }
  return measured;
}

nvme::Options options_of(const Point& point) {
  nvme::Options options;
  options.engine = point.engine;
  options.block_size = point.block;
  options.queue_depth = point.depth;
  options.threads = threads_of(point);
  return options;
}

}  // namespace

/// The streams of a point, each on a thread of its own, while they run.
class DriveBench::Session {
 public:
  Session(DriveBench& bench, const Point& point, Bytes most_written) : bench_(bench) {
    const std::vector<nvme::Op> ops = ops_of(point.traffic);
    std::array<std::span<std::byte>, 2> memory;
    std::vector<std::span<std::byte>> enrolled;
    for (const nvme::Op op : ops) {
      enrolled.push_back(memory[index(op)] = bench.memory(op, point));
    }
    clock_ = std::make_shared<TransferClock>(memory[0], memory[1]);
    bench.target_->use(options_of(point), clock_, enrolled);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      StreamOptions options = part(i, ops.size());
      options.op = ops[i];
      options.block = point.block;
      options.from = bench.next_[index(ops[i])];
      if (ops[i] == nvme::Op::kWrite) options.most = most_written;
      streams_.emplace_back(*bench.target_, bench.pattern_, memory[index(ops[i])], options);
      ops_.push_back(ops[i]);
    }
    for (Stream& stream : streams_) {
      running_.push_back(std::async(std::launch::async, [this, &stream] { stream.run(over_); }));
    }
  }
  ~Session() {
    over_ = 1;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (i < running_.size() && running_[i].valid()) running_[i].wait();
      bench_.next_[index(ops_[i])] += round_up(streams_[i].asked(), bench_.request_);
      if (ops_[i] == nvme::Op::kWrite) bench_.written_ += streams_[i].asked();
    }
  }

  /// False when there is nothing more to see: stopped, failed, or enough was written.
  template <class Condition>
  bool wait_until(const Condition& condition) {
    while (!condition()) {
      if (ended()) return false;
      std::this_thread::sleep_for(kTick);
    }
    return true;
  }
  bool ended() const {
    return bench_.stop_ != 0 || std::ranges::any_of(streams_, &Stream::exhausted) ||
           std::ranges::any_of(running_, [](const std::future<void>& running) {
             return running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
           });
  }
  Moment now() const {
    return {now_ns(), clock_->moved(nvme::Op::kRead), clock_->moved(nvme::Op::kWrite),
            processor_seconds()};
  }
  /// Whether there is a duration of each kind.
  bool all_timed() const {
    return std::ranges::all_of(ops_, [&](nvme::Op op) { return clock_->timed(op); });
  }
  /// Ends the streams; the first error of one of them.
  void finish() {
    over_ = 1;
    for (std::future<void>& running : running_) running.wait();
    for (std::future<void>& running : running_) running.get();
  }
  Bytes check() const {
    Bytes compared = 0;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i] == nvme::Op::kRead) compared += streams_[i].check();
    }
    return compared;
  }
  TransferClock& clock() { return *clock_; }

 private:
  static std::size_t index(nvme::Op op) { return static_cast<std::size_t>(op); }

  /// Of two streams each has a half, so that nothing is read while it is being written.
  StreamOptions part(std::size_t i, std::size_t n) const {
    StreamOptions options;
    options.request = bench_.request_;
    options.bytes = bench_.target_->bytes() / bench_.request_ / n * bench_.request_;
    options.begin = i * options.bytes;
    return options;
  }

  DriveBench& bench_;
  std::shared_ptr<TransferClock> clock_;
  std::vector<nvme::Op> ops_;
  std::deque<Stream> streams_;
  std::atomic<int> over_{0};
  std::vector<std::future<void>> running_;  // last: they use all of the above
};

DriveBench::DriveBench(std::unique_ptr<Target> target, Bytes request, std::uint64_t seed,
                       const std::atomic<int>& stop)
    : target_(std::move(target)),
      request_(request),
      pattern_(target_->bytes(), request, seed),
      stop_(stop) {}

DriveBench::~DriveBench() = default;

/// What is written from holds the noise already.
std::span<std::byte> DriveBench::memory(nvme::Op op, const Point& point) {
  Memory& memory = memory_[static_cast<std::size_t>(op)];
  const Bytes need = requests_at_a_time(point, request_) * request_;
  if (memory.size < need) {
    memory = {};
    memory = {nvme::allocate_aligned(need), need};
    if (op == nvme::Op::kWrite) pattern_.fill({memory.bytes.get(), need});
  }
  return {memory.bytes.get(), need};
}

double DriveBench::fill(const Point& how) {
  const std::span<std::byte> from = memory(nvme::Op::kWrite, how);
  target_->use(options_of(how), nullptr, {from});
  const Bytes all = target_->bytes();
  Stream stream(*target_, pattern_, from,
                {nvme::Op::kWrite, 0, all, 0, request_, how.block, all, false});
  const Nanos begin = now_ns();
  stream.run(stop_);
  written_ += stream.asked();
  return static_cast<double>(stream.asked()) / std::max(to_seconds(now_ns() - begin), 1e-9);
}

std::optional<Measured> DriveBench::measure(const Point& point, const Box& box) {
  Session session(*this, point, box.most_written);
  const Moment start = session.now();
  const auto warm = static_cast<Bytes>(kWarmUp * static_cast<double>(box.most_written));
  Moment from = start;
  const auto over = [&](double seconds) { return to_seconds(now_ns() - start.time) >= seconds; };
  if (session.wait_until([&] {
        return over(kWarmUp * box.seconds) ||
               (point.traffic != Traffic::kRead && session.now().written >= warm);
      })) {
    session.clock().begin();
    from = session.now();
    session.wait_until([&] { return over(box.seconds) && session.all_timed(); });
  }
  const Moment until = session.now();
  session.clock().end();
  session.finish();
  if (stop_ != 0) return std::nullopt;
  // So little was to be written that it was over between two looks: then all of it counts.
  const bool seen = until.read > from.read || until.written > from.written;
  Measured measured = seen ? between(from, until) : between(start, session.now());
  measured.point = point;
  measured.read_latency = session.clock().latency(nvme::Op::kRead);
  measured.write_latency = session.clock().latency(nvme::Op::kWrite);
  measured.verified_bytes = session.check();
  return measured;
}

Steady DriveBench::write_until_flat(const Point& point, Bytes most,
                                    const std::function<void(double)>& said) {
  Session session(*this, point, most);
  Steady steady;
  Moment from = session.now();
  const auto second = [&] { return to_seconds(now_ns() - from.time) >= 1; };
  while (!steady.flat && session.wait_until(second)) {
    const Moment until = session.now();
    steady.rates.push_back(between(from, until).write_rate);
    said(steady.rates.back());
    steady.flat = is_flat(steady.rates);
    from = until;
  }
  session.finish();
  return steady;
}

Bytes DriveBench::verify(const Point& how) {
  const std::span<std::byte> into = memory(nvme::Op::kRead, how);
  target_->use(options_of(how), nullptr, {into});
  const Bytes all = target_->bytes();
  Stream stream(*target_, pattern_, into,
                {nvme::Op::kRead, 0, all, 0, request_, how.block, all, false});
  Bytes compared = 0;
  stream.run(stop_, [&](Bytes offset, std::span<const std::byte> memory) {
    require_same(*target_, pattern_, offset, memory);
    compared += memory.size();
  });
  return compared;
}

}  // namespace sluice::bench
