/// How many of like cases are run.
///
/// SLUICE_CROWN=reduced where all is slow; =least where a sanitizer watches memory or threads,
/// which is what is looked for there: bits are the same as elsewhere.
#pragma once

#include <cstdint>

namespace sluice::train {

enum class Extent : std::uint8_t { kAll, kReduced, kLeast };

Extent extent();

}  // namespace sluice::train
