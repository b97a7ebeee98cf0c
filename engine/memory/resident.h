/// What the operating system says this process has taken.
#pragma once

#include <optional>

#include "engine/base/units.h"

namespace sluice::memory {

/// The most bytes that were resident at once, since the process began (VmHWM); nullopt where the
/// system does not say.
std::optional<Bytes> peak_resident();

}  // namespace sluice::memory
