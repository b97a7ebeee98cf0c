/// Tensors over memory that somebody else owns.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "engine/base/dtype.h"

namespace sluice::tensor {

/// Where ops compute, and every view lies: the CPU, or the first CUDA device.
at::Device device();

at::ScalarType scalar_type(DType dtype);

/// A contiguous tensor over `data`, which begins on a multiple of 64 bytes: kernels may choose
/// their path by that, so it must be the same on every placement. Takes nothing from any allocator
/// and frees nothing.
///
/// Owns    nothing: the memory must outlive the tensor and everything that shares its storage
/// Throws  kLogic when it begins elsewhere
at::Tensor view(void* data, at::IntArrayRef sizes, DType dtype);
/// All of them become zero; with a device that is not the host, in the order of the stream whose
/// work the thread is in.
void clear(std::span<std::byte> bytes);
/// Of other types, begun anywhere: tokens, targets, a loss. No sum goes over them.
at::Tensor view_int32(std::int32_t* data, at::IntArrayRef sizes);
at::Tensor view_int64(std::int64_t* data, at::IntArrayRef sizes);
at::Tensor view_fp64(double* data, at::IntArrayRef sizes);

}  // namespace sluice::tensor
