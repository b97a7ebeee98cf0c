// The rows of a device, on the host: linked in place of the host's own, the whole model runs on
// them.
#include "tests/model/emulated/launch.h"

namespace sluice::model {

using Launch = emulated::Launch;

}  // namespace sluice::model

#include "engine/model/fused/backend.h"  // after the Launch that it takes
