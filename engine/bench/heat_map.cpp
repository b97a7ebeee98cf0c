#include "engine/bench/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::bench {
namespace {

// The darkest colour of a theme still lets its text be read: both are set together.
constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sluice bench nvme</title>
<style>
:root { color-scheme: light dark; --heat: 84 178 148; --text: #16201d; --faint: #66706d;
  --line: #d9dfdd; --page: #ffffff; --mark: #b4420f; }
@media (prefers-color-scheme: dark) { :root { --heat: 14 112 84; --text: #e9efed;
  --faint: #9aa5a1; --line: #36403d; --page: #14191a; --mark: #ffa56b; } }
body { margin: 2rem auto; padding: 0 1.5rem; max-width: 76rem; color: var(--text);
  background: var(--page); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 1rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .2rem; }
p, small { color: var(--faint); }
p { margin: .2rem 0 .8rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
.context th { text-align: left; font-weight: 400; color: var(--faint); padding: .1rem 1.2rem .1rem 0;
  vertical-align: top; white-space: nowrap; }
.context td { padding: .1rem 0; overflow-wrap: anywhere; }
.grids { display: flex; flex-wrap: wrap; gap: 1.4rem 2.4rem; }
.grid th { font-weight: 400; color: var(--faint); padding: .2rem .6rem; text-align: right; }
.grid td { min-width: 4.2rem; padding: .3rem .5rem; text-align: right; line-height: 1.2;
  border: 1px solid var(--line); background: rgb(var(--heat) / var(--share, 0)); }
.grid td small { display: block; color: inherit; opacity: .75; }
.grid td.none { text-align: center; color: var(--faint); }
.grid td.chosen { outline: 3px solid var(--mark); outline-offset: -2px; font-weight: 700; }
.chosen-word { color: var(--mark); font-weight: 700; }
</style>
</head>
<body>
<h1>sluice bench nvme</h1>
)";

constexpr std::string_view kTail = "</body>\n</html>\n";

/// As text between tags and in quoted attributes. Control characters have no place in HTML.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

/// Without a fraction where there is none: "128 KiB", "1 MiB".
std::string block_name(Bytes n) {
  if (n % 1_MiB == 0) return fmt::format("{} MiB", n / 1_MiB);
  return fmt::format("{} KiB", n / 1_KiB);
}

std::string context_table(const Context& context) {
  const std::vector<std::pair<std::string_view, std::string>> rows = {
      {"date", context.date},
      {"processor", fmt::format("{}, {} cores", context.cpu, context.cores)},
      {"kernel", context.kernel},
      {"path", context.path},
      {"filesystem", context.filesystem},
      {"device", context.device},
      {"free", format_bytes(context.free)},
      {"engines", context.engines},
      {"direct", context.direct},
      {"memlock", context.memlock},
      {"writes planned", format_bytes(context.planned_writes)}};
  std::string html = "<table class=\"context\">\n";
  for (const auto& [name, value] : rows) {
    if (value.empty()) continue;
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, escaped(value));
  }
  return html + "</table>\n";
}

std::string microseconds(const Latency& latency) {
  return fmt::format("{:.0f} / {:.0f} / {:.0f} us", latency.p50_s * 1e6, latency.p99_s * 1e6,
                     latency.p999_s * 1e6);
}

/// What a cell says when it is pointed at.
std::string title_of(const Summary& summary) {
  std::string text =
      fmt::format("{}, {}, depth {}: read {:.2f} GB/s, written {:.2f} GB/s",
                  name_of(summary.point.engine), block_name(summary.point.block),
                  summary.point.depth, summary.read_rate * 1e-9, summary.write_rate * 1e-9);
  if (summary.read_latency.p50_s > 0) {
    text += "\nread p50 / p99 / p99.9: " + microseconds(summary.read_latency);
  }
  if (summary.write_latency.p50_s > 0) {
    text += "\nwrite p50 / p99 / p99.9: " + microseconds(summary.write_latency);
  }
  return text + fmt::format("\n{:.3f} s of processors per GB\n{} runs, last {:+.0f} % of first",
                            summary.cpu_s_per_gb, summary.repetitions, summary.drift * 100);
}

class Page {
 public:
  Page(std::span<const Summary> summaries, std::span<const Point> chosen)
      : summaries_(summaries), chosen_(chosen) {}

  /// Empty when nothing of it was measured.
  std::string section(Traffic traffic) const {
    const double fastest = fastest_of(traffic);
    if (fastest <= 0) return {};
    std::string html =
        fmt::format("<h2>{}</h2>\n<p>up to {:.2f} GB/s", name_of(traffic), fastest * 1e-9);
    if (traffic == Traffic::kMixed) html += ", read and written together";
    html += "</p>\n<div class=\"grids\">\n";
    for (const nvme::Engine engine :
         {nvme::Engine::kIoUring, nvme::Engine::kLibaio, nvme::Engine::kThreads}) {
      html += grid(traffic, engine, fastest);
    }
    return html + "</div>\n";
  }

 private:
  double fastest_of(Traffic traffic) const {
    double fastest = 0;
    for (const Summary& s : summaries_) {
      if (s.point.traffic == traffic) fastest = std::max(fastest, s.rate());
    }
    return fastest;
  }

  std::string grid(Traffic traffic, nvme::Engine engine, double fastest) const {
    std::set<Bytes> blocks;
    std::set<unsigned> depths;
    for (const Summary& s : summaries_) {
      if (s.point.traffic != traffic || s.point.engine != engine) continue;
      blocks.insert(s.point.block);
      depths.insert(s.point.depth);
    }
    if (blocks.empty()) return {};
    std::string html = fmt::format(
        "<table class=\"grid\">\n<caption>{}</caption>\n<tr><th>depth</th>", name_of(engine));
    for (const unsigned depth : depths) html += fmt::format("<th>{}</th>", depth);
    html += "</tr>\n";
    for (const Bytes block : blocks) {
      html += fmt::format("<tr><th>{}</th>", block_name(block));
      for (const unsigned depth : depths) html += cell({engine, block, depth, traffic}, fastest);
      html += "</tr>\n";
    }
    return html + "</table>\n";
  }

  std::string cell(const Point& point, double fastest) const {
    const auto found = std::ranges::find(summaries_, point, &Summary::point);
    if (found == summaries_.end()) return "<td class=\"none\">&middot;</td>";
    const bool chosen = std::ranges::find(chosen_, point) != chosen_.end();
    // Squared: a tenth less than the fastest should be seen.
    const double share = std::pow(found->rate() / fastest, 2);
    return fmt::format(
        R"(<td{} style="--share: {:.2f}" title="{}">{:.2f}<small>{}</small></td>)",
        chosen ? R"( class="chosen")" : "", share, escaped(title_of(*found)), found->rate() * 1e-9,
        found->repetitions > 1 ? fmt::format("{:.0f} %", found->spread * 100) : "one run");
  }

  std::span<const Summary> summaries_;
  std::span<const Point> chosen_;
};

}  // namespace

std::string heat_map(const Context& context, std::span<const Summary> summaries,
                     std::span<const Point> chosen) {
  std::string html(kHead);
  html += context_table(context);
  html +=
      "<p>Each cell: GB/s (10<sup>9</sup> bytes a second), the median of its runs; below it the "
      "spread, (fastest - slowest) / median. Rows are the size of a block, columns how many are in "
      "flight each way.";
  if (!chosen.empty()) html += " <span class=\"chosen-word\">Framed</span>: chosen.";
  html += "</p>\n";
  const Page page(summaries, chosen);
  for (const Traffic traffic : {Traffic::kRead, Traffic::kWrite, Traffic::kMixed}) {
    html += page.section(traffic);
  }
  html += kTail;
  return html;
}

}  // namespace sluice::bench
