/// The instruction sets that this machine can run, and the kernels written for each.
#pragma once

#include <string_view>
#include <vector>

#include "cpu_adam/options.h"

namespace sluice::cpu_adam {

struct Kernels;

/// "avx512", "avx2", ...: as the run file spells them.
std::string_view name_of(Isa isa);

/// What this CPU and its operating system run, best first; kScalar is always there, and last.
std::vector<Isa> available_isas();

/// The wanted one, or the best for kAuto. Throws kConfig when this machine cannot run it.
Isa choose_isa(Isa wanted);

/// The kernels of one available instruction set.
const Kernels& kernels_of(Isa isa);

}  // namespace sluice::cpu_adam
