/// Where each class of bytes lives between uses.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/units.h"

namespace sluice::schedule {

/// none: it stays on the device.
enum class ParamHome : std::uint8_t { kNone, kCpu };
enum class GradientHome : std::uint8_t { kNone, kCpu };
enum class OptimizerHome : std::uint8_t { kCpu, kNvme };

struct Options {
  ParamHome offload_param = ParamHome::kCpu;
  GradientHome offload_gradient = GradientHome::kCpu;
  OptimizerHome offload_optimizer = OptimizerHome::kCpu;
  /// Bytes of state (master, m, v in fp32) per chunk of the optimizer; nullopt = auto.
  std::optional<Bytes> sub_group_size;
};

}  // namespace sluice::schedule
