#include "engine/model/host/rows_body.h"

namespace sluice::model::rows {
template struct KernelsFor<Base>;
}  // namespace sluice::model::rows
