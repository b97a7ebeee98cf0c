/// What LibTorch's products of matrices are made of on this processor.
#pragma once

#include <optional>
#include <string>

#include "engine/base/dtype.h"
#include "engine/tensor/process.h"

namespace sluice::tensor {

/// For people.
struct Lack {
  std::string reason;
  std::string remedy;
};

/// Whether there are no instructions here that multiply values of this type, or oneDNN may not use
/// them: LibTorch would emulate such products. nullopt: there are, or it is not known.
std::optional<Lack> lacks_products(DType type, const CodePaths& paths);

}  // namespace sluice::tensor
