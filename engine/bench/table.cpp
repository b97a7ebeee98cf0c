#include "engine/bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "engine/bench/aio_block.h"
#include "engine/bench/summary.h"

namespace sluice::bench {
namespace {

double gb(double bytes) {
  return bytes / 1e9;
}

std::string rate_text(double rate) {
  return rate > 0 ? fmt::format("{:.2f}", gb(rate)) : "-";
}

/// Microseconds.
std::string latency_text(const Latency& latency) {
  if (latency.p50_s == 0) return "-";
  return fmt::format("{:.0f} {:.0f} {:.0f}", 1e6 * latency.p50_s, 1e6 * latency.p99_s,
                     1e6 * latency.p999_s);
}

/// Of the heading and of every row.
constexpr std::string_view kColumns =
    "{:<7} {:<8} {:>7} {:>5} {:>7} {:>7} {:>6} {:>6} {:>22} {:>22} {:>6} {:>4}\n";

std::string row(const Summary& summary) {
  const bool several = summary.repetitions > 1;
  return fmt::format(kColumns, name_of(summary.point.traffic), name_of(summary.point.engine),
                     exact_size(summary.point.block), summary.point.depth,
                     rate_text(summary.read_rate), rate_text(summary.write_rate),
                     several ? fmt::format("±{:.0f}%", 50 * summary.spread) : "-",
                     several ? fmt::format("{:+.0f}%", 100 * summary.drift) : "-",
                     latency_text(summary.read_latency), latency_text(summary.write_latency),
                     fmt::format("{:.3f}", summary.cpu_s_per_gb), summary.repetitions);
}

std::string steady_text(const Steady& steady) {
  if (steady.rates.empty()) {
    return "writing on and on: over in less than a second; raise --max-write to see a rate\n";
  }
  return fmt::format("writing on and on: {:.2f} GB/s at first, {:.2f} after {} s{}\n",
                     gb(steady.rates.front()), gb(steady.rates.back()), steady.rates.size(),
                     steady.flat ? "" : " and not yet flat; a larger --max-write goes on longer");
}

}  // namespace

std::string text_of(const Point& point) {
  return fmt::format("{} {} x {} {}", name_of(point.engine), exact_size(point.block), point.depth,
                     name_of(point.traffic));
}

std::string rates_text(double read_rate, double write_rate) {
  std::string text;
  if (read_rate > 0) text += fmt::format("read {:.2f} ", gb(read_rate));
  if (write_rate > 0) text += fmt::format("write {:.2f} ", gb(write_rate));
  return text + "GB/s";
}

std::string text_of(const MachineContext& machine) {
  return fmt::format("{}, {} cores, {}", machine.cpu, machine.cores, machine.kernel);
}

std::string preamble(const Context& context, const std::vector<std::string>& notes) {
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("{:<11} {}\n", what, value);
  };
  line("path", fmt::format("{} ({}, {} free)", context.path, context.filesystem,
                           format_bytes(context.free)));
  line("drive", context.device);
  if (!context.wear.empty()) line("wear", context.wear);
  line("machine", text_of(context));
  line("engines", context.engines);
  line("direct", context.direct);
  line("memlock", context.memlock);
  line("writes", fmt::format("at most {}", format_bytes(context.planned_writes)));
  for (const std::string& note : notes) line("note", note);
  return text;
}

std::string table(const std::vector<Summary>& summaries) {
  std::string text =
      fmt::format(kColumns, "traffic", "engine", "block", "depth", "rd GB/s", "wr GB/s", "spread",
                  "drift", "read us p50 99 99.9", "write us p50 99 99.9", "cpu/GB", "runs");
  for (const Summary& summary : summaries) text += row(summary);
  return text;
}

std::vector<Summary> best_of_each(const std::vector<Summary>& summaries) {
  std::vector<Summary> best;
  for (const Traffic traffic : {Traffic::kRead, Traffic::kWrite, Traffic::kMixed}) {
    for (const nvme::Engine engine :
         {nvme::Engine::kIoUring, nvme::Engine::kLibaio, nvme::Engine::kThreads}) {
      std::vector<Summary> own;
      std::ranges::copy_if(summaries, std::back_inserter(own),
                           [&](const Summary& summary) { return summary.point.engine == engine; });
      if (const Summary* found = winner(own, traffic)) best.push_back(*found);
    }
  }
  return best;
}

std::string verdict(const DriveResult& result) {
  std::string text;
  if (result.winner) {
    const Summary& best = *result.winner;
    text += fmt::format("best {}: {}; in a run file:\n", name_of(best.point.traffic),
                        rates_text(best.read_rate, best.write_rate));
    text += fmt::format("  {}\n", aio_line(best.point));
  }
  if (result.steady) text += steady_text(*result.steady);
  text += fmt::format("{} written, {} read back and compared{}\n", format_bytes(result.written),
                      format_bytes(result.verified),
                      result.whole ? ": all as written" : "; stopped before all of it was");
  return text;
}

}  // namespace sluice::bench
