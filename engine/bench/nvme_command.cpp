#include "engine/bench/nvme_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/stop_signal.h"
#include "engine/bench/context.h"
#include "engine/bench/drive_run.h"
#include "engine/bench/files.h"
#include "engine/bench/json.h"
#include "engine/bench/progress.h"
#include "engine/bench/summary.h"
#include "engine/bench/table.h"
#include "engine/bench/uses.h"

namespace sluice::bench {
namespace {

struct Usual {
  double seconds;
  Bytes file, most_written;
};

/// By Effort.
constexpr std::array kUsual = {Usual{60, 1_GiB, 64_GiB}, Usual{300, 2_GiB, 256_GiB},
                               Usual{1200, 4_GiB, 1024_GiB}};

/// How much is written on and on, where nobody says: less than this, and than a part of what is
/// free.
constexpr Bytes kMostSteady = 32_GiB;
constexpr Bytes kFreeToSteady = 20;

Bytes size_of(const std::string& option, const std::string& text, Bytes usual) {
  if (text.empty()) return usual;
  try {
    return parse_bytes(text);
  } catch (const Error& error) {
    throw Error(error.code, fmt::format("{}: {}", option, error.what()));
  }
}

/// What is written to have something to read must not use up what may be written: of that the file
/// is one part in so many.
constexpr Bytes kFileOfWritten = 4;
Bytes file_within(Bytes most_written) {
  return round_down(most_written / kFileOfWritten, kAlignment);
}

RunOptions options_of(const NvmeArguments& arguments, std::size_t drives) {
  SLUICE_CHECK(!arguments.quick || !arguments.full, kConfig,
               "--quick and --full cannot both be; leave one out");
  SLUICE_CHECK(!arguments.steady || !arguments.read_only, kConfig,
               "--steady writes and --read-only does not; leave one out");
  SLUICE_CHECK(
      arguments.uses.model.empty() || !arguments.read_only, kConfig,
      "--model needs the rate of reading and writing at once: leave --read-only or --model out");
  const Effort effort = arguments.quick  ? Effort::kQuick
                        : arguments.full ? Effort::kFull
                                         : Effort::kUsual;
  const Usual& usual = kUsual[static_cast<std::size_t>(effort)];
  RunOptions options;
  options.seconds = arguments.seconds > 0 ? arguments.seconds : usual.seconds;
  options.file = round_down(size_of("--file-size", arguments.file_size, usual.file), kAlignment);
  options.most_written = size_of("--max-write", arguments.max_write, usual.most_written);
  // Several drives are measured alone and then together, each drive by a half of what it may take.
  const Bytes sweeps = drives > 1 ? 2 : 1;
  options.most_written /= sweeps;
  if (arguments.file_size.empty()) {
    options.file = std::min(options.file, file_within(options.most_written));
    SLUICE_CHECK(options.file >= kLeastFile, kConfig,
                 fmt::format("--max-write {} is too little; use {} or more", arguments.max_write,
                             format_bytes(sweeps * kFileOfWritten * kLeastFile)));
  }
  SLUICE_CHECK(2 * options.file <= options.most_written, kConfig,
               fmt::format("--max-write leaves {} for each sweep, which is less than twice "
                           "--file-size {}; raise it, or lower the other",
                           format_bytes(options.most_written), format_bytes(options.file)));
  options.read_only = arguments.read_only;
  options.seed = std::random_device{}();
  return options;
}

/// As far as the place goes.
RunOptions options_at(const Place& place, RunOptions options, const NvmeArguments& arguments) {
  if (arguments.steady) {
    const Bytes most = arguments.max_write.empty()
                           ? std::min(kMostSteady, place.on.free / kFreeToSteady)
                           : options.most_written / 2;
    options.steady_written = round_down(most, kAlignment);
    options.steady_file = round_down(std::min(most, place.on.free / 2), kAlignment);
  }
  const Bytes steady = arguments.steady ? std::max(options.steady_file, options.file) : 0;
  const Bytes compared = arguments.uses.compare_fio ? room_to_compare() : 0;
  require_room(place, std::max(options.file + steady, compared));
  return options;
}

/// Those on a drive that another one is on too are left out, aloud.
std::vector<Place> places_of(const NvmeArguments& arguments) {
  std::vector<Place> places;
  for (const std::string& path : arguments.paths) {
    Place place = place_of(path, arguments.allow_ram ? nvme::AllowRam::kYes : nvme::AllowRam::kNo);
    const auto same =
        std::ranges::find_if(places, [&](const Place& other) { return one_drive(place, other); });
    if (same == places.end()) {
      places.push_back(std::move(place));
    } else {
      same->notes.push_back(fmt::format("{} is on the same drive: measured once", place.folder));
    }
  }
  return places;
}

/// What a user sees, line by line; nothing of it with --quiet but the results.
class Output {
 public:
  explicit Output(const NvmeArguments& arguments)
      : arguments_(arguments), progress_(arguments.quiet ? Talk::kNone : usual_talk()) {}

  Progress& progress() { return progress_; }
  void begun(const Context& context, const std::vector<std::string>& notes) {
    progress_.clear();
    if (!arguments_.quiet) print(preamble(context, notes));
  }
  void ended(const DriveResult& result) {
    progress_.clear();
    print("\n" + table(arguments_.all ? result.summaries : best_of_each(result.summaries)));
    print(verdict(result));
  }

 private:
  static void print(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    log::info(text);
  }

  const NvmeArguments& arguments_;
  Progress progress_;
};

DriveResult run_alone(Place& place, const RunOptions& options, Output& output) {
  Means means = means_of(place, nvme::Direct::kAuto);
  const auto target = [&](Bytes bytes) {
    return std::make_unique<FolderTarget>(place.folder, bytes, nvme::Direct::kAuto);
  };
  return run_drive(
      place.folder, std::move(means), target, options, output.progress(), stop_signal(),
      [&](const DriveResult& result) { output.begun(result.means.context, place.notes); });
}

/// What all of them can do.
Means means_together(const std::vector<DriveResult>& results, const std::string& name) {
  Means means = results.front().means;
  std::vector<std::string> devices;
  for (const DriveResult& result : results) {
    std::erase_if(means.engines, [&](nvme::Engine engine) {
      return std::ranges::find(result.means.engines, engine) == result.means.engines.end();
    });
    if (result.means.caching == nvme::Caching::kPageCache) means.caching = result.means.caching;
    means.context.free = std::min(means.context.free, result.means.context.free);
    devices.push_back(result.means.context.device);
  }
  means.context.path = name;
  means.context.wear.clear();
  means.context.endurance_left = 0;
  means.context.device = fmt::format("{}", fmt::join(devices, " and "));
  return means;
}

/// All drives at once, striped as the tier of a run is.
DriveResult run_together(const std::vector<DriveResult>& alone, RunOptions options,
                         Output& output) {
  std::vector<std::string> folders;
  std::vector<double> speeds;
  for (const DriveResult& result : alone) {
    folders.push_back(result.name);
    speeds.push_back(result.winner ? std::max(result.winner->rate(), 1.0) : 1.0);
  }
  const std::string name = fmt::format("{}", fmt::join(folders, " + "));
  options.steady_written = 0;
  options.file = std::min(options.file * folders.size(), file_within(options.most_written));
  const auto target = [&](Bytes bytes) {
    return make_striped_target(folders, speeds, bytes, nvme::Direct::kAuto);
  };
  return run_drive(name, means_together(alone, name), target, options, output.progress(),
                   stop_signal(), [&](const DriveResult& result) {
                     output.begun(result.means.context, {"all drives together, striped"});
                   });
}

}  // namespace

int nvme(const NvmeArguments& arguments) {
  std::vector<Place> places = places_of(arguments);
  const RunOptions options = options_of(arguments, places.size());
  require_writable("--json", arguments.json);
  check(arguments.uses);
  require_different({{"--json", arguments.json},
                     {"--html", arguments.uses.html},
                     {"--write-config", arguments.uses.write_config}});
  std::vector<RunOptions> options_by_place;
  for (const Place& place : places) {
    options_by_place.push_back(options_at(place, options, arguments));
  }
  watch_stop_signals("stopping; what is being measured just now is left out");

  Output output(arguments);
  std::vector<DriveResult> results;
  const auto save = [&] {
    if (arguments.json.empty() || results.empty()) return;
    write_result("--json", arguments.json, to_json(results));
  };
  try {
    for (std::size_t i = 0; i < places.size() && stop_signal() == 0; ++i) {
      results.push_back(run_alone(places[i], options_by_place[i], output));
      output.ended(results.back());
    }
    if (places.size() > 1 && stop_signal() == 0) {
      results.push_back(run_together(results, options, output));
      output.ended(results.back());
    }
  } catch (const Error&) {
    save();  // what there is
    throw;
  }
  save();
  if (stop_signal() == 0) make_use(arguments.uses, results, options, output.progress());
  if (stop_signal() != 0) return 128 + stop_signal();
  return std::ranges::all_of(results, &DriveResult::whole) ? 0 : exit_code(Errc::kLogic);
}

}  // namespace sluice::bench
