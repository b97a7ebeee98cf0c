#include "engine/model/host/rows_body.h"

namespace sluice::model::rows {
template struct KernelsFor<Avx512>;
}  // namespace sluice::model::rows
