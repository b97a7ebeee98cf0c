#include "cpu_adam/kernel_body.h"

namespace sluice::cpu_adam {
template struct KernelsFor<xsimd::sse2>;
}  // namespace sluice::cpu_adam
