#include "engine/model/cuda/launch.h"

namespace sluice::model {

using Launch = cuda::Launch;

}  // namespace sluice::model

#include "engine/model/fused/backend.h"  // after the Launch that it takes
