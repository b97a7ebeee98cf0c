/// Where each class of bytes lives between uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/base/units.h"

namespace sluice::schedule {

/// none: it stays on the device.
enum class ParamHome : std::uint8_t { kNone, kCpu, kNvme };
enum class GradientHome : std::uint8_t { kNone, kCpu };
enum class OptimizerHome : std::uint8_t { kNone, kCpu, kNvme };
enum class ActivationHome : std::uint8_t { kNone, kCpu, kNvme };

/// As a run file spells them.
constexpr std::string_view name_of(ParamHome home) {
  switch (home) {
    case ParamHome::kNone:
      return "none";
    case ParamHome::kCpu:
      return "cpu";
    case ParamHome::kNvme:
      return "nvme";
  }
  return {};
}
constexpr std::string_view name_of(GradientHome home) {
  switch (home) {
    case GradientHome::kNone:
      return "none";
    case GradientHome::kCpu:
      return "cpu";
  }
  return {};
}
constexpr std::string_view name_of(OptimizerHome home) {
  switch (home) {
    case OptimizerHome::kNone:
      return "none";
    case OptimizerHome::kCpu:
      return "cpu";
    case OptimizerHome::kNvme:
      return "nvme";
  }
  return {};
}
constexpr std::string_view name_of(ActivationHome home) {
  switch (home) {
    case ActivationHome::kNone:
      return "none";
    case ActivationHome::kCpu:
      return "cpu";
    case ActivationHome::kNvme:
      return "nvme";
  }
  return {};
}

/// Which layers run their forward again in backward.
enum class Recompute : std::uint8_t {
  kNone,  ///< for weights that stay on the device
  kAuto,  ///< all where weights are fetched; else those that the device has no room to keep
  kEveryLayer
};

/// When the optimizer works.
enum class Update : std::uint8_t {
  kEnd,       ///< once every gradient of the step is there
  kArriving,  ///< on each segment, behind its last backward
  kDelayed    ///< beside the next step, with the gradients that this one leaves
};
constexpr std::string_view name_of(Update update) {
  switch (update) {
    case Update::kEnd:
      return "end";
    case Update::kArriving:
      return "arriving";
    case Update::kDelayed:
      return "delayed";
  }
  return {};
}

struct Options {
  ParamHome offload_param = ParamHome::kCpu;
  /// nullopt = auto: where the optimizer works.
  std::optional<GradientHome> offload_gradient = std::nullopt;
  OptimizerHome offload_optimizer = OptimizerHome::kCpu;
  ActivationHome offload_activation = ActivationHome::kNone;
  Recompute recompute = Recompute::kAuto;
  /// Bytes of state (master, m, v in fp32) per chunk of the optimizer; nullopt = auto.
  std::optional<Bytes> sub_group_size = std::nullopt;
};

}  // namespace sluice::schedule
