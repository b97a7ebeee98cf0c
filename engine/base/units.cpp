#include "engine/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
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

Bytes parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || !std::isfinite(value))
    refuse(text, "write a number and a unit, as 64MiB");
  if (value < 0) refuse(text, "it is negative");
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
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

}  // namespace sluice
