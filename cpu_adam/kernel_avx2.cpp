#include "cpu_adam/kernel_body.h"

namespace sluice::cpu_adam {
template struct KernelsFor<xsimd::fma3<xsimd::avx2>>;
}  // namespace sluice::cpu_adam
