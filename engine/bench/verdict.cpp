#include "engine/bench/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/zero/options.h"

namespace sluice::bench {
namespace {

/// Floating-point operations per parameter and token: two forward, four backward, and two for the
/// forward that is computed again.
constexpr double kFlopsPerParameter = 8;
constexpr double kSecondsPerDay = 86400;

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array kCounts = {Unit{"K", 1e3}, Unit{"M", 1e6}, Unit{"B", 1e9}, Unit{"T", 1e12}};

/// A positive number directly before one of the units; nullopt when it is not that.
std::optional<double> counted(std::string_view text) {
  const auto given = quantity_in(text);
  if (!given || given->number <= 0) return std::nullopt;
  const auto unit = std::ranges::find(kCounts, given->unit, &Unit::name);
  if (unit == kCounts.end()) return std::nullopt;
  return given->number * unit->factor;
}

/// Both directions together until the faster one is done, then the other alone.
double seconds_of(double bytes, const Rates& rates) {
  const double both = std::min(bytes / rates.mixed_read, bytes / rates.mixed_write);
  const bool reads_left = rates.mixed_read < rates.mixed_write;
  const double slow = reads_left ? rates.mixed_read : rates.mixed_write;
  const double alone = reads_left ? rates.read : rates.write;
  return both + (bytes - both * slow) / (alone > 0 ? alone : slow);
}

/// "8B", "1.3B", "124M".
std::string count(double n) {
  for (const Unit& unit : {kCounts[3], kCounts[2], kCounts[1], kCounts[0]}) {
    if (n >= unit.factor) return fmt::format("{:.4g}{}", n / unit.factor, unit.name);
  }
  return fmt::format("{:.0f}", n);
}

std::string decimal(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.4g} TB", bytes * 1e-12);
  return fmt::format("{:.3g} GB", bytes * 1e-9);
}

/// "1,250,000": of numbers that people compare by their length.
std::string grouped(double n) {
  std::string text = fmt::format("{:.0f}", n);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace

std::uint64_t parse_parameters(std::string_view text) {
  constexpr double kLargest = 1e15;
  const auto n = counted(text);
  SLUICE_CHECK(n && *n >= 1 && *n <= kLargest, kConfig,
               fmt::format("'{}' is not the size of a model: write its parameters as 8B, 1.3B or "
                           "124M\n(of a run file: sluice train FILE --dry-run)",
                           text.substr(0, 60)));
  return static_cast<std::uint64_t>(std::llround(*n));
}

Verdict judge(const Question& question) {
  const Rates& rates = question.rates;
  SLUICE_CHECK(rates.mixed_read > 0 && rates.mixed_write > 0, kLogic,
               "verdict: the drive was not measured with both directions under way");
  const auto parameters = static_cast<double>(question.parameters);
  Verdict verdict;
  verdict.parameters = question.parameters;
  verdict.read_bytes = parameters * static_cast<double>(zero::kStateBytesPerElem);
  verdict.written_bytes = verdict.read_bytes;
  verdict.drive_s = seconds_of(verdict.read_bytes, rates);
  verdict.step_s = std::max(verdict.drive_s, question.step_s.value_or(0));
  verdict.mixed_rate = rates.mixed_read + rates.mixed_write;
  verdict.flops_per_s = question.flops_per_s;
  if (question.flops_per_s) {
    verdict.tokens =
        std::ceil(verdict.drive_s * *question.flops_per_s / (kFlopsPerParameter * parameters));
  }
  verdict.endurance = question.endurance;
  if (question.endurance) {
    verdict.steps = std::floor(*question.endurance / verdict.written_bytes);
    verdict.days = verdict.steps * verdict.step_s / kSecondsPerDay;
  }
  return verdict;
}

std::string text_of(const Verdict& verdict) {
  std::string text = fmt::format(
      "{} parameters, optimizer state on this drive: {} read and {} written each step\n",
      count(static_cast<double>(verdict.parameters)), decimal(verdict.read_bytes),
      decimal(verdict.written_bytes));
  text += fmt::format("at {:.2f} GB/s, both ways together: {:.1f} s a step\n",
                      verdict.mixed_rate * 1e-9, verdict.drive_s);
  if (verdict.flops_per_s) {
    text += fmt::format(
        "hidden behind the computing when a step has {} tokens or more, at {:.3g} TFLOP/s\n",
        grouped(verdict.tokens), *verdict.flops_per_s * 1e-12);
  }
  if (verdict.endurance) {
    text += fmt::format("{} of writes are used up after {} steps, {:.1f} days at {:.1f} s a step\n",
                        decimal(*verdict.endurance), grouped(verdict.steps), verdict.days,
                        verdict.step_s);
  }
  return text;
}

}  // namespace sluice::bench
