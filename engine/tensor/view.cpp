#include "engine/tensor/view.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/alignment.h>
#include <fmt/format.h>

#include "engine/base/error.h"

namespace sluice::tensor {
namespace {

// With the device named LibTorch does not ask the driver whose memory it is.
at::Tensor over(void* data, at::IntArrayRef sizes, at::ScalarType type) {
  return at::for_blob(data, sizes)
      .options(at::TensorOptions(type).device(device()))
      .target_device(device())
      .make_tensor();
}

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBf16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
  }
  throw Error(Errc::kLogic, "no such dtype");
}

at::Tensor view(void* data, at::IntArrayRef sizes, DType dtype) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  SLUICE_CHECK(address % c10::gAlignment == 0, kLogic,
               fmt::format("a tensor at {:#x}: its bits are promised on multiples of {} only",
                           address, c10::gAlignment));
  return over(data, sizes, scalar_type(dtype));
}

at::Tensor view_int32(std::int32_t* data, at::IntArrayRef sizes) {
  return over(data, sizes, at::kInt);
}

at::Tensor view_fp64(double* data, at::IntArrayRef sizes) {
  return over(data, sizes, at::kDouble);
}

at::Tensor view_int64(std::int64_t* data, at::IntArrayRef sizes) {
  return over(data, sizes, at::kLong);
}

}  // namespace sluice::tensor
