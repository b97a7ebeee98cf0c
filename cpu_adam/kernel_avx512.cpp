#include "cpu_adam/kernel_body.h"

namespace sluice::cpu_adam {
template struct KernelsFor<xsimd::avx512bw>;
}  // namespace sluice::cpu_adam
