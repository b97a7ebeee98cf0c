/// What the programs that measure the nvme tier begin with.
#pragma once

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvme/options.h"
#include "nvme/speed.h"

namespace sluice {

/// "io_uring", "libaio" or "threads".
inline std::optional<nvme::Engine> engine_named(std::string_view name) {
  using enum nvme::Engine;
  for (const nvme::Engine engine : {kIoUring, kLibaio, kThreads}) {
    if (name == nvme::name_of(engine)) return engine;
  }
  return std::nullopt;
}

/// Above 0; nullopt: it is no number.
inline std::optional<double> seconds_named(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = *end == '\0' && std::isfinite(value) && value > 0;
  return good ? std::optional(value) : std::nullopt;
}

/// What the stripes of a store over these folders follow.
inline std::vector<double> speeds_of(const std::vector<std::string>& folders,
                                     const nvme::Options& options) {
  std::vector<double> speeds;
  for (const nvme::Speed& speed : nvme::look_at(folders, options, 1_GiB)) {
    speeds.push_back(speed.both());
  }
  return speeds;
}

}  // namespace sluice
