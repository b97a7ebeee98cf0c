/// How many of like cases a test runs.
///
/// SLUICE_EXTENT=reduced where all is slow; =least where a sanitizer watches memory or threads,
/// which is what is looked for there: the rest is the same as elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/base/error.h"

namespace sluice::test {

enum class Extent : std::uint8_t { kAll, kReduced, kLeast };

inline Extent extent() {
  const char* wanted = std::getenv("SLUICE_EXTENT");
  const std::string name = wanted == nullptr ? "" : wanted;
  if (name.empty()) return Extent::kAll;
  if (name == "reduced") return Extent::kReduced;
  if (name == "least") return Extent::kLeast;
  throw Error(Errc::kConfig, "SLUICE_EXTENT is '" + name + "', not reduced or least");
}

inline std::size_t by_extent(std::size_t all, std::size_t reduced, std::size_t least) {
  switch (extent()) {
    case Extent::kReduced:
      return reduced;
    case Extent::kLeast:
      return least;
    default:
      return all;
  }
}

}  // namespace sluice::test
