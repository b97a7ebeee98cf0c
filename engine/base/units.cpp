#include "engine/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/base/error.h"

namespace sluice {
namespace {

struct Unit {
  std::string_view name;
  int shift;
};

// K, M and G are binary in every spelling.
constexpr std::array kUnits = {
    Unit{"B", 0},   Unit{"KiB", 10}, Unit{"MiB", 20}, Unit{"GiB", 30}, Unit{"TiB", 40},
    Unit{"KB", 10}, Unit{"MB", 20},  Unit{"GB", 30},  Unit{"TB", 40},  Unit{"K", 10},
    Unit{"M", 20},  Unit{"G", 30},   Unit{"T", 40},
};

/// In powers of ten, and in GB.
struct DecimalUnit {
  std::string_view name;
  Bytes gb;
};
constexpr std::array kDecimalUnits = {DecimalUnit{"PB", 1'000'000}, DecimalUnit{"TB", 1'000},
                                      DecimalUnit{"GB", 1}};
constexpr Bytes kGb = 1'000'000'000;

[[noreturn]] void refuse(std::string_view text, std::string_view reason) {
  throw Error(Errc::kConfig, fmt::format("'{}' is not a size: {}", text, reason));
}

}  // namespace

std::string format_bytes(Bytes n) {
  if (n < 1_KiB) return fmt::format("{} B", n);
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(n) / 1024.0;
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string exact_size(Bytes n) {
  constexpr std::array<std::pair<int, const char*>, 4> kExact = {
      {{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}}};
  for (const auto& [shift, name] : kExact) {
    if (n != 0 && n % (Bytes{1} << shift) == 0) return fmt::format("{}{}", n >> shift, name);
  }
  return fmt::format("{}B", n);
}

std::optional<Quantity> quantity_in(std::string_view text) {
  Quantity q;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), q.number);
  if (ec != std::errc{} || !std::isfinite(q.number)) return std::nullopt;
  q.unit = {end, static_cast<std::size_t>(text.data() + text.size() - end)};
  while (q.unit.starts_with(' ')) q.unit.remove_prefix(1);
  return q;
}

Bytes parse_bytes(std::string_view text) {
  const auto q = quantity_in(text);
  if (!q) refuse(text, "write a number and a unit, as 64MiB");
  const auto [value, unit] = *q;
  if (value < 0) refuse(text, "it is negative");
  if (unit.empty()) {
    refuse(text, fmt::format("it has no unit; sizes are bytes here (DeepSpeed counts elements): "
                             "write {:g}B, or a number with KiB, MiB or GiB",
                             value));
  }
  for (const Unit& u : kUnits) {
    if (u.name != unit) continue;
    const double bytes = std::ldexp(value, u.shift);
    if (bytes != std::floor(bytes)) refuse(text, "it comes to no whole number of bytes");
    if (bytes >= std::ldexp(1.0, 63)) refuse(text, "it is larger than any machine");
    return static_cast<Bytes>(bytes);
  }
  refuse(text, fmt::format("unknown unit '{}'; use B, KiB, MiB, GiB or TiB", unit));
}

Bytes parse_endurance(std::string_view text) {
  constexpr double kMostGb = 1e9;
  const auto q = quantity_in(text);
  const auto unit = std::ranges::find(kDecimalUnits, q ? q->unit : "", &DecimalUnit::name);
  const double gb = unit != kDecimalUnits.end() ? q->number * static_cast<double>(unit->gb) : 0;
  // 1.1 PB is off by its rounding.
  const bool whole = std::abs(gb - std::round(gb)) < 1e-6;
  SLUICE_CHECK(gb >= 1 && gb <= kMostGb && whole, kConfig,
               fmt::format("'{}' is not what a drive endures: write the TBW of its data sheet, as "
                           "600TB or 1.2PB",
                           text.substr(0, 60)));
  return static_cast<Bytes>(std::llround(gb)) * kGb;
}

std::string format_endurance(Bytes n) {
  const Bytes gb = n / kGb;
  const auto unit =
      std::ranges::find_if(kDecimalUnits, [&](const DecimalUnit& u) { return gb % u.gb == 0; });
  return fmt::format("{}{}", gb / unit->gb, unit->name);
}

}  // namespace sluice
