#include "cpu_adam/kernel_body.h"

namespace sluice::cpu_adam {
template struct KernelsFor<xsimd::neon64>;
}  // namespace sluice::cpu_adam
