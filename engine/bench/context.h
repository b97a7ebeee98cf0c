/// Where something is to be measured, and on what: looked at before anything lasting is done.
///
/// Thread  any
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/bench/device.h"
#include "engine/bench/point.h"
#include "nvme/file.h"
#include "nvme/filesystem.h"
#include "nvme/options.h"
#include "nvme/store.h"

namespace sluice::bench {

/// Now, and here.
MachineContext machine_context();

/// A folder that can be measured.
struct Place {
  std::string folder;  ///< as it is named without links
  nvme::Filesystem on;
  Device device;
  std::vector<std::string> notes;  ///< what the user should know, a line each
};

/// Throws  kConfig, in one line with what to do, for what is no folder, cannot be written, or is
///         memory (unless that is allowed); kIo
Place place_of(const std::string& path, nvme::AllowRam allow_ram);

/// Throws  kBudget with need and free
void require_room(const Place& place, Bytes n);

bool one_drive(const Place& a, const Place& b);

/// What can be done there.
struct Means {
  std::vector<nvme::Engine> engines;  ///< usable ones
  nvme::Caching caching = nvme::Caching::kDirect;
  Context context;  ///< but for planned_writes
};

/// Tries files (without a name) and queues. Throws  as nvme::open_unnamed(), for `direct`
Means means_of(Place& place, nvme::Direct direct);

}  // namespace sluice::bench
