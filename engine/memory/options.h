/// How much of each tier a run may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/units.h"
#include "gpu/options.h"

namespace sluice::memory {

/// A size, or a fraction of what the machine has.
using Limit = std::variant<Bytes, double>;

enum class Unified : std::uint8_t {
  kAuto,  ///< ask the device: where its memory is host memory, copies are elided
  kFalse  ///< copy even where memory is shared
};

struct GpuTier {
  std::optional<gpu::Backend> device;  ///< that a run needs; nullopt = whatever there is
  Limit limit = 0.95;
  Unified unified = Unified::kAuto;
};

struct CpuTier {
  std::optional<Limit> limit;  ///< nullopt = auto: what is available now, less `reserve`
  Bytes reserve = 4_GiB;       ///< left to the rest of the machine when `limit` is auto
  /// Of what is pinned for copies to and from a device; nullopt = auto: all of it.
  std::optional<Bytes> pinned_limit;
};

struct NvmeTier {
  std::vector<std::string> paths;  ///< folders, one per drive; empty = a folder of the run
  Limit limit = 0.9;               ///< of the free space
  bool allow_ram_path = false;     ///< accept a tmpfs: a test of the code, not of a disk
  std::optional<Bytes> endurance;  ///< that the drives together may be written; nullopt = not said
};

struct Options {
  GpuTier gpu;
  CpuTier cpu;
  NvmeTier nvme;
};

}  // namespace sluice::memory
