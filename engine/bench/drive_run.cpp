#include "engine/bench/drive_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/bench/summary.h"
#include "engine/bench/sweep.h"
#include "engine/bench/table.h"
#include "nvme/aligned.h"

namespace sluice::bench {
namespace {

constexpr Bytes kUsualRequest = 32_MiB;
/// On a slow drive a request is smaller, so that its end can be waited for.
constexpr double kRequestSeconds = 0.16;
/// And what is written to have something to read takes no more than this part of the time.
constexpr double kFillShare = 0.15;

/// Moves what the sweep does not measure: two requests' worth in flight, so that it is possible
/// wherever a point is.
Point plain(const Means& means, Bytes request) {
  const Bytes block = std::min<Bytes>(1_MiB, request / 4);
  const auto depth = static_cast<unsigned>(std::min<Bytes>(32, 2 * request / block));
  return {means.engines.front(), block, depth, Traffic::kWrite};
}

Bytes look_bytes(const RunOptions& options) {
  return std::min(kUsualRequest, round_down(options.file / kLeastRequests, kAlignment));
}

/// Bytes per second of a first short write.
double first_look(Target& target, const Means& means, Bytes bytes) {
  const nvme::AlignedBytes memory = nvme::allocate_aligned(bytes);
  nvme::Options options;
  options.engine = means.engines.front();
  target.use(options, nullptr, {});
  const Nanos begin = now_ns();
  target.transfer(nvme::Op::kWrite, 0, {memory.get(), bytes}).wait();
  return static_cast<double>(bytes) / std::max(to_seconds(now_ns() - begin), 1e-6);
}

Bytes request_for(double rate, Bytes file) {
  const auto in_time = static_cast<Bytes>(rate * kRequestSeconds);
  const Bytes room = std::min(file / kLeastRequests, kUsualRequest);
  return std::bit_floor(std::clamp(in_time, std::min<Bytes>(1_MiB, room), room));
}

Bytes line_for(double rate, Bytes request, const RunOptions& options) {
  const auto in_time = static_cast<Bytes>(rate * kFillShare * options.seconds);
  const Bytes most = round_down(options.file, request);
  return std::clamp(round_down(in_time, request), std::min(kLeastRequests * request, most), most);
}

/// The parts of run_drive(), in their order.
class DriveRun {
 public:
  DriveRun(const std::string& name, Means means, const MakeTarget& make_target,
           const RunOptions& options, Progress& progress, const std::atomic<int>& stop)
      : make_target_(make_target), options_(options), progress_(progress), stop_(stop) {
    result_.name = name;
    result_.means = std::move(means);
  }

  DriveResult run(const std::function<void(const DriveResult&)>& begun) {
    progress_.begin(result_.name + ": first writes", kFillShare * options_.seconds);
    prepare();
    progress_.clear();
    if (!stopped()) sweep(begun);
    if (!stopped() && options_.steady_written > 0) write_until_flat();
    if (!stopped()) verify();
    result_.written += bench_->written();
    progress_.clear();
    return std::move(result_);
  }

 private:
  bool stopped() const { return stop_ != 0; }
  double left_s() const { return options_.seconds - to_seconds(now_ns() - begin_); }

  void prepare() {
    std::unique_ptr<Target> target = make_target_(options_.file);
    const Bytes look = look_bytes(options_);
    const double rate = first_look(*target, result_.means, look);
    result_.written += look;
    request_ = request_for(rate, options_.file);
    const Bytes line = line_for(rate, request_, options_);
    if (line != options_.file) target = make_target_(line);
    bench_ = std::make_unique<DriveBench>(std::move(target), request_, options_.seed, stop_);
    rate_ = bench_->fill(plain(result_.means, request_));
  }

  Terms terms() const {
    Terms terms;
    terms.engines = result_.means.engines;
    terms.traffics = {Traffic::kRead};
    if (!options_.read_only) terms.traffics = {Traffic::kRead, Traffic::kWrite, Traffic::kMixed};
    const Bytes line = bench_->target().bytes();
    terms.seconds = std::max(left_s() - static_cast<double>(line) / rate_, options_.seconds / 4);
    const Bytes else_written = options_.file + look_bytes(options_) + options_.steady_written;
    terms.written_else = else_written;
    terms.most_written = options_.most_written - std::min(else_written, options_.most_written);
    terms.line = line;
    terms.request = request_;
    terms.rate = rate_;
    terms.seed = options_.seed;
    return terms;
  }

  void sweep(const std::function<void(const DriveResult&)>& begun) {
    const Terms terms = this->terms();
    const Sweep sweep(terms);
    result_.means.context.planned_writes =
        result_.written + bench_->written() + sweep.planned_writes() + options_.steady_written;
    begun(result_);
    progress_.begin(result_.name, terms.seconds);
    measure(sweep.coarse());
    measure(sweep.finer(result_.summaries));
    measure(sweep.finals(result_.summaries));
    const Traffic decides = options_.read_only ? Traffic::kRead : Traffic::kMixed;
    const Summary* best = winner(result_.summaries, decides);
    if (best != nullptr && best->rate() > 0) result_.winner = *best;
    SLUICE_CHECK(result_.winner || stopped(), kConfig,
                 fmt::format("{}: nothing came back in the {:.3g} s of --seconds; raise it",
                             result_.name, options_.seconds));
  }

  void measure(const std::vector<Turn>& runs) {
    for (const Turn& run : runs) {
      if (stopped()) break;
      std::optional<Measured> one = bench_->measure(run.point, {run.seconds, run.most_written});
      if (!one) break;
      one->repetition =
          static_cast<int>(std::ranges::count(result_.measured, run.point, &Measured::point));
      result_.verified += one->verified_bytes;
      progress_.measured(*one);
      result_.measured.push_back(*one);
    }
    result_.summaries = summarize(result_.measured);
  }

  void write_until_flat() {
    const Bytes bytes =
        std::max(round_down(options_.steady_file, request_), bench_->target().bytes());
    DriveBench bench(make_target_(bytes), request_, options_.seed + 1, stop_);
    Point point = result_.winner ? result_.winner->point : plain(result_.means, request_);
    point.traffic = Traffic::kWrite;
    progress_.begin(result_.name + ": writing until it is flat",
                    static_cast<double>(options_.steady_written) / rate_);
    result_.steady = bench.write_until_flat(
        point, options_.steady_written, [&](double rate) { progress_.now(rates_text(0, rate)); });
    result_.written += bench.written();
  }

  void verify() {
    progress_.begin(result_.name + ": comparing all of it",
                    static_cast<double>(bench_->target().bytes()) / rate_);
    const Bytes compared = bench_->verify(plain(result_.means, request_));
    result_.verified += compared;
    result_.whole = compared == bench_->target().bytes();
  }

  const MakeTarget& make_target_;
  const RunOptions options_;
  Progress& progress_;
  const std::atomic<int>& stop_;
  const Nanos begin_ = now_ns();
  DriveResult result_;
  std::unique_ptr<DriveBench> bench_;
  Bytes request_ = 0;
  double rate_ = 0;
};

}  // namespace

DriveResult run_drive(const std::string& name, Means means, const MakeTarget& make_target,
                      const RunOptions& options, Progress& progress, const std::atomic<int>& stop,
                      const std::function<void(const DriveResult&)>& begun) {
  SLUICE_CHECK(options.file >= kLeastFile, kConfig,
               fmt::format("--file-size {} is too small; use {} or more",
                           format_bytes(options.file), format_bytes(kLeastFile)));
  return DriveRun(name, std::move(means), make_target, options, progress, stop).run(begun);
}

}  // namespace sluice::bench
