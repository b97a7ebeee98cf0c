#include "cpu_adam/kernel_body.h"

namespace sluice::cpu_adam {
template struct KernelsFor<Scalar>;
}  // namespace sluice::cpu_adam
