#include "engine/bench/memory_table.h"

#include <fmt/format.h>

namespace sluice::bench {
namespace {

std::string row(const MemorySummary& summary) {
  const MemoryPoint& point = summary.point;
  const auto items = static_cast<double>(point.parameters);
  return fmt::format(
      "{:<7} {:<7} {:<9} {:>7} {:>7} {:>9} {:>7.1f} {:>6} {:>7} {:>4}\n", point.work, point.by,
      name_of(point.stores), point.threads, point.size,
      point.parameters > 0 ? fmt::format("{:.3f}", 1e9 * summary.seconds / items) : "-",
      summary.rate() / 1e9,
      summary.roof_seconds > 0 ? fmt::format("{:.0f}%", 100 * summary.of_roof()) : "-",
      summary.repetitions > 1 ? fmt::format("±{:.0f}%", 50 * summary.spread) : "-",
      summary.repetitions);
}

/// Of the largest model that was updated.
const MemorySummary* fastest_update(const std::vector<MemorySummary>& summaries) {
  const MemorySummary* best = nullptr;
  for (const MemorySummary& one : summaries) {
    if (one.point.work != "update" || one.point.roof) continue;
    if (best == nullptr || one.point.parameters > best->point.parameters ||
        (one.point.parameters == best->point.parameters && one.seconds < best->seconds)) {
      best = &one;
    }
  }
  return best;
}

}  // namespace

const char* name_of(cpu_adam::Stores stores) {
  return stores == cpu_adam::Stores::kStreaming ? "streaming" : "cached";
}

std::string table(const std::vector<MemorySummary>& summaries) {
  std::string text =
      fmt::format("{:<7} {:<7} {:<9} {:>7} {:>7} {:>9} {:>7} {:>6} {:>7} {:>4}\n", "work", "by",
                  "stores", "threads", "size", "ns/param", "GB/s", "roof", "spread", "runs");
  for (const MemorySummary& summary : summaries) text += row(summary);
  return text;
}

std::string verdict(const std::vector<MemorySummary>& summaries) {
  const MemorySummary* const best = fastest_update(summaries);
  if (best == nullptr) return "";
  const MemoryPoint& point = best->point;
  return fmt::format(
      "best update of {} parameters: {:.2f} s for each billion, {:.0f}% of the roof; in a run file "
      "(auto finds it too):\n  cpu_adam: {{isa: {}, stores: {}, threads: {}}}\n",
      point.size, 1e9 * best->seconds / static_cast<double>(point.parameters),
      100 * best->of_roof(), point.by, name_of(point.stores), point.threads);
}

}  // namespace sluice::bench
