#include "tests/train/extent.h"

#include <cstdlib>
#include <string>

#include "engine/base/error.h"

namespace sluice::train {

Extent extent() {
  const char* wanted = std::getenv("SLUICE_CROWN");
  const std::string name = wanted == nullptr ? "" : wanted;
  if (name.empty()) return Extent::kAll;
  if (name == "reduced") return Extent::kReduced;
  if (name == "least") return Extent::kLeast;
  throw Error(Errc::kConfig, "SLUICE_CROWN is '" + name + "', not reduced or least");
}

}  // namespace sluice::train
