#include "engine/bench/uses.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/stop_signal.h"
#include "engine/bench/aio_block.h"
#include "engine/bench/compare.h"
#include "engine/bench/drive_bench.h"
#include "engine/bench/files.h"
#include "engine/bench/fio.h"
#include "engine/bench/heat_map.h"
#include "engine/bench/summary.h"
#include "engine/bench/table.h"
#include "engine/bench/verdict.h"

namespace sluice::bench {
namespace {

constexpr int kPairs = 5;
constexpr double kPairSeconds = 3;  // of each side
constexpr Bytes kCompared = 1_GiB;  // the file
constexpr Bytes kRequest = 32_MiB;
constexpr Bytes kEndless = std::numeric_limits<Bytes>::max();

/// Bytes that both sides write while one traffic is compared: fio lays its file out anew each time.
Bytes written_by_comparing(const DriveResult& result, Traffic traffic) {
  const Summary* best = fastest(result.summaries, traffic);
  constexpr Bytes kFiles = (1 + kPairs) * kCompared;
  if (best == nullptr || traffic == Traffic::kRead) return kFiles;
  const double seconds = 2 * kPairs * (kPairSeconds + 1);
  return kFiles + static_cast<Bytes>(best->write_rate * seconds);
}

/// Ours, then fio's, and the other way round in every second pair: what comes first meets a drive
/// that has rested.
std::vector<Pair> pairs_of(const DriveResult& result, Traffic traffic, Progress& progress) {
  Point point = result.winner->point;
  point.traffic = traffic;
  DriveBench bench(std::make_unique<FolderTarget>(result.name, kCompared, nvme::Direct::kAuto),
                   kRequest, 1, stop_signal());
  bench.fill(point);
  const FioJob job{.point = point, .seconds = kPairSeconds, .size = kCompared};
  std::vector<Pair> pairs;
  while (pairs.size() < kPairs && stop_signal() == 0) {
    progress.begin(fmt::format("{} {} beside fio, pair {} of {}", result.name, name_of(traffic),
                               pairs.size() + 1, kPairs),
                   2 * (kPairSeconds + 1));
    const auto of_fio = [&] { return run_fio(job, result.name, stop_signal()); };
    const bool fio_first = pairs.size() % 2 == 1;
    std::optional<Measured> fio;
    if (fio_first) fio = of_fio();
    const auto ours = bench.measure(point, {kPairSeconds, kEndless});
    if (!fio_first) fio = of_fio();
    if (!ours || !fio) break;
    pairs.push_back({*ours, *fio});
  }
  return pairs;
}

void compare_with_fio(const DriveResult& result, const RunOptions& options, Progress& progress) {
  Bytes written = result.written;
  for (const Traffic traffic : {Traffic::kRead, Traffic::kWrite, Traffic::kMixed}) {
    if (options.read_only && traffic != Traffic::kRead) continue;
    written += written_by_comparing(result, traffic);
    if (written > options.most_written) {
      log::warning(
          fmt::format("{}: {} is not compared with fio, which would write more than "
                      "the {} that --max-write leaves it; raise that",
                      result.name, name_of(traffic), format_bytes(options.most_written)));
      continue;
    }
    const std::vector<Pair> pairs = pairs_of(result, traffic, progress);
    progress.clear();
    if (!pairs.empty()) log::info(line_of(compare(pairs)));
  }
}

void write_page(const std::string& file, const DriveResult& result) {
  std::vector<Point> chosen;
  for (const Traffic traffic : {Traffic::kRead, Traffic::kWrite, Traffic::kMixed}) {
    if (const Summary* best = winner(result.summaries, traffic)) chosen.push_back(best->point);
  }
  write_result("--html", file, heat_map(result.means.context, result.summaries, chosen));
  log::info(fmt::format("--html: {}", file));
}

void write_run_file(const std::string& file, const DriveResult& result) {
  const AioMerge merge = write_aio(file, aio_choice(result.means.context, *result.winner));
  log::info(fmt::format("--write-config: {} {}", file,
                        merge.changed() ? "has these values of aio now" : "had these values"));
}

Question question_of(const Uses& uses, const DriveResult& result) {
  const auto rate = [&](Traffic traffic) {
    const Summary* best = fastest(result.summaries, traffic);
    return best != nullptr ? best->rate() : 0;
  };
  Question question;
  question.parameters = parse_parameters(uses.model);
  question.rates = {result.winner->read_rate, result.winner->write_rate, rate(Traffic::kRead),
                    rate(Traffic::kWrite)};
  if (uses.tflops > 0) question.flops_per_s = uses.tflops * 1e12;
  if (!uses.endurance.empty()) {
    question.endurance = static_cast<double>(parse_endurance(uses.endurance));
  } else if (result.means.context.endurance_left > 0) {
    question.endurance = result.means.context.endurance_left;
  }
  return question;
}

void answer(const Uses& uses, const DriveResult& result) {
  std::string text = text_of(judge(question_of(uses, result)));
  if (text.ends_with('\n')) text.pop_back();
  log::info(text);
}

}  // namespace

Bytes room_to_compare() {
  return 2 * kCompared;
}

void check(const Uses& uses) {
  if (!uses.model.empty()) parse_parameters(uses.model);
  if (!uses.endurance.empty()) parse_endurance(uses.endurance);
  SLUICE_CHECK(!uses.model.empty() || (uses.endurance.empty() && uses.tflops == 0), kConfig,
               "--endurance and --tflops answer for a model: add --model 8B");
  require_writable("--html", uses.html);
  if (!uses.write_config.empty()) {
    SLUICE_CHECK(::access(uses.write_config.c_str(), R_OK | W_OK) == 0, kConfig,
                 fmt::format("--write-config {}: {}; name a run file", uses.write_config,
                             std::generic_category().message(errno)));
    require_aio_file(uses.write_config);
  }
  if (uses.compare_fio) require_fio();
}

void make_use(const Uses& uses, const std::vector<DriveResult>& results, const RunOptions& options,
              Progress& progress) {
  if (uses.compare_fio) {
    const std::size_t alone = results.size() > 1 ? results.size() - 1 : 1;
    for (std::size_t i = 0; i < alone && stop_signal() == 0; ++i) {
      if (results[i].winner) compare_with_fio(results[i], options, progress);
    }
  }
  const DriveResult& all = results.back();
  if (!uses.html.empty()) write_page(uses.html, all);
  if (!all.winner) return;
  if (!uses.write_config.empty()) write_run_file(uses.write_config, all);
  if (!uses.model.empty()) answer(uses, all);
}

}  // namespace sluice::bench
