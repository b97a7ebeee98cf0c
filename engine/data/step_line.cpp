#include "engine/data/step_line.h"

#include <fmt/core.h>

#include <cmath>

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

std::string seconds(double value) {
  const int digits = value >= 10 ? 1 : value >= 1 ? 2 : 3;
  return fmt::format("{:.{}f} s", value, digits);
}

std::string rate(std::int64_t tokens, double in_seconds) {
  const double per_second = static_cast<double>(tokens) / in_seconds;
  return (per_second < 9.95 ? fmt::format("{:.1f}", per_second)
                            : with_thousands(std::llround(per_second))) +
         " tok/s";
}

std::string memory(Bytes used, Bytes limit) {
  const Bytes larger = limit > used ? limit : used;
  const Bytes unit = larger >= 1_GiB ? 1_GiB : 1_MiB;
  const auto in_units = [&](Bytes n) {
    return short_number(static_cast<double>(n) / static_cast<double>(unit));
  };
  return fmt::format("cpu {}{} {}", in_units(used), limit > 0 ? '/' + in_units(limit) : "",
                     unit == 1_GiB ? "GiB" : "MiB");
}

std::string gb_per_s(Bytes n, double in_seconds) {
  return short_number(static_cast<double>(n) * 1e-9 / in_seconds);
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

}  // namespace

std::string step_line(const StepRecord& record) {
  std::string line = fmt::format("step {}", record.step);
  if (record.steps > 0) line += fmt::format("/{}", record.steps);
  const auto add = [&](const std::string& part) { line += " | " + part; };

  add(fmt::format("loss {:.4f}", record.loss));
  if (record.valid_loss) add(fmt::format("valid {:.4f}", *record.valid_loss));
  add("gnorm " + norm(record.gnorm));
  if (record.skipped) add("skipped");
  add(fmt::format("lr {:.1e}", record.lr));
  add(seconds(record.seconds));
  if (record.seconds > 0) add(rate(record.tokens, record.seconds));
  add(memory(record.cpu_bytes, record.cpu_limit));
  if (record.seconds > 0 && record.nvme_read_bytes + record.nvme_write_bytes > 0) {
    add(fmt::format("nvme r {} w {} GB/s", gb_per_s(record.nvme_read_bytes, record.seconds),
                    gb_per_s(record.nvme_write_bytes, record.seconds)));
  }
  if (!record.bound.empty()) {
    add(fmt::format("bound {} {:.0f}%", record.bound, 100 * record.bound_share));
  }
  if (record.mean_seconds > 0 && record.steps > record.step) {
    add("eta " + duration(static_cast<double>(record.steps - record.step) * record.mean_seconds));
  }
  return line;
}

}  // namespace sluice::data
