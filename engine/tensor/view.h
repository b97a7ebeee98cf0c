/// Tensors over memory that somebody else owns.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/base/dtype.h"

namespace sluice::tensor {

at::ScalarType scalar_type(DType dtype);

/// A contiguous tensor over `data`; takes nothing from any allocator and frees nothing.
///
/// Owns    nothing: the memory must outlive the tensor and everything that shares its storage
at::Tensor view(void* data, at::IntArrayRef sizes, DType dtype);
/// The same of int64: tokens and targets.
at::Tensor view_int64(std::int64_t* data, at::IntArrayRef sizes);

}  // namespace sluice::tensor
