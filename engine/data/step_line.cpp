#include "engine/data/step_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace sluice::data {
namespace {

constexpr double kMinute = 60;
constexpr double kHour = 60 * kMinute;
constexpr double kDay = 24 * kHour;

std::string with_thousands(std::int64_t n) {
  std::string text = std::to_string(n);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

/// Three digits or so, whatever the size.
std::string short_number(double value) {
  return value >= 9.95 ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}", value);
}

std::string norm(double value) {
  const bool plain = value == 0 || (value >= 0.01 && value < 1e5) || !std::isfinite(value);
  return plain ? fmt::format("{:.2f}", value) : fmt::format("{:.1e}", value);
}

std::string rate(std::int64_t tokens, double in_seconds) {
  const double per_second = static_cast<double>(tokens) / in_seconds;
  return (per_second < 9.95 ? fmt::format("{:.1f}", per_second)
                            : with_thousands(std::llround(per_second))) +
         " tok/s";
}

struct Unit {
  const char* name;
  double size;
};

/// The largest unit that leaves at least one of it; the last one when none does.
Unit unit_of(double value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value >= unit.size) return unit;
  }
  return units.back();
}

std::string memory(Bytes used, Bytes limit) {
  static constexpr Unit kUnits[] = {
      {"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}};
  const auto size = [](Bytes n) { return unit_of(static_cast<double>(n), kUnits); };
  const auto number = [&](Bytes n) { return short_number(static_cast<double>(n) / size(n).size); };
  const char* const unit = size(used).name;
  if (limit == 0) return fmt::format("cpu {} {}", number(used), unit);
  const char* const last = size(limit).name;
  return fmt::format("cpu {}{}/{} {}", number(used), unit == last ? "" : fmt::format(" {}", unit),
                     number(limit), last);
}

/// In the units of drives' data sheets.
std::string worn_by(Bytes total) {
  static constexpr Unit kUnits[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}};
  if (total == 0) return {};
  const auto n = static_cast<double>(total);
  const Unit unit = unit_of(n, kUnits);
  return fmt::format(", {} {} written", short_number(n / unit.size), unit.name);
}

std::string drives(Bytes read, Bytes written, double in_seconds, Bytes total) {
  static constexpr Unit kUnits[] = {{"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}};
  const double r = static_cast<double>(read) / in_seconds;
  const double w = static_cast<double>(written) / in_seconds;
  const Unit unit = unit_of(std::max(r, w), kUnits);
  return fmt::format("nvme r {} w {} {}{}", short_number(r / unit.size),
                     short_number(w / unit.size), unit.name, worn_by(total));
}

/// Two units at most: 2d04h, 14h12m, 3m05s, 12s.
std::string duration(double s) {
  if (s < kMinute) return fmt::format("{:.0f}s", std::floor(s));
  const auto whole = [](double x) { return static_cast<std::int64_t>(x); };
  if (s < kHour) return fmt::format("{}m{:02}s", whole(s / kMinute), whole(std::fmod(s, kMinute)));
  if (s < kDay) {
    return fmt::format("{}h{:02}m", whole(s / kHour), whole(std::fmod(s, kHour) / kMinute));
  }
  return fmt::format("{}d{:02}h", whole(s / kDay), whole(std::fmod(s, kDay) / kHour));
}

std::string bound_part(const StepRecord& record) {
  return fmt::format("bound {} {:.0f}%", record.bound, 100 * record.bound_share);
}

/// Empty when it is not known, or nothing is left.
std::string eta_part(const StepRecord& record) {
  if (record.mean_seconds <= 0 || record.steps <= record.step) return "";
  return "eta " + duration(static_cast<double>(record.steps - record.step) * record.mean_seconds);
}

}  // namespace

std::string format_seconds(double value) {
  if (value < 0.01) return fmt::format("{:.2f} ms", 1e3 * value);
  const int digits = value >= 10 ? 1 : value >= 1 ? 2 : 3;
  return fmt::format("{:.{}f} s", value, digits);
}

std::string step_line(const StepRecord& record) {
  std::string line = fmt::format("step {}", record.step);
  if (record.steps > 0) line += fmt::format("/{}", record.steps);
  const auto add = [&](const std::string& part) { line += " | " + part; };

  add(fmt::format("loss {:.4f}", record.loss));
  if (record.valid_loss) add(fmt::format("valid {:.4f}", *record.valid_loss));
  add("gnorm " + norm(record.gnorm));
  if (record.largest_gnorm) add("largest of a segment " + norm(*record.largest_gnorm));
  if (record.loss_scale) add(fmt::format("scale {}", *record.loss_scale));
  if (record.skipped) add("skipped");
  if (record.delayed) add("delayed");
  add(fmt::format("lr {:.1e}", record.lr));
  add(format_seconds(record.seconds));
  if (record.seconds > 0) add(rate(record.tokens, record.seconds));
  if (record.mfu) add(fmt::format("mfu {:.0f}%", 100 * *record.mfu));
  add(memory(record.cpu_bytes, record.cpu_limit));
  if (record.seconds > 0 && record.nvme_read_bytes + record.nvme_write_bytes > 0) {
    add(drives(record.nvme_read_bytes, record.nvme_write_bytes, record.seconds,
               record.nvme_write_total));
  }
  if (!record.bound.empty()) add(bound_part(record));
  if (const std::string eta = eta_part(record); !eta.empty()) add(eta);
  return line;
}

std::string progress_line(const StepRecord& record, std::size_t columns) {
  constexpr std::int64_t kWidth = 20;
  const std::int64_t steps = std::max<std::int64_t>(record.steps, 1);
  const auto done =
      static_cast<std::size_t>(std::clamp<std::int64_t>(record.step * kWidth / steps, 0, kWidth));
  std::string bar = std::string(done, '=') + (done < kWidth ? ">" : "");
  bar.resize(kWidth, ' ');
  std::string line = fmt::format("[{}] {}/{}", bar, record.step, record.steps);
  if (const std::string eta = eta_part(record); !eta.empty()) line += " | " + eta;
  if (!record.bound.empty()) line += " | " + bound_part(record);
  line += fmt::format(" | loss {:.4f}", record.loss);
  if (line.size() > columns) line.resize(columns);
  return line;
}

}  // namespace sluice::data
