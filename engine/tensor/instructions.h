/// What LibTorch's products of matrices are made of on this processor.
#pragma once

#include <optional>
#include <string>

#include "engine/base/dtype.h"
#include "engine/tensor/process.h"

namespace sluice::tensor {

/// Why nothing multiplies values of this type here, for people: LibTorch then emulates it, at a
/// fifth of the speed of fp32 (bf16) or a hundredth (fp16). nullopt: instructions do, or that is
/// not known.
std::optional<std::string> lacks_products(DType type, const CodePaths& paths);

}  // namespace sluice::tensor
