#include "engine/tensor/view.h"

#include <ATen/ops/from_blob.h>

namespace sluice::tensor {

at::ScalarType scalar_type(DType dtype) {
  return dtype == DType::kF32 ? at::kFloat : at::kBFloat16;
}

at::Tensor view(void* data, at::IntArrayRef sizes, DType dtype) {
  return at::from_blob(data, sizes, at::TensorOptions(scalar_type(dtype)));
}

at::Tensor view_int64(std::int64_t* data, at::IntArrayRef sizes) {
  return at::from_blob(data, sizes, at::TensorOptions(at::kLong));
}

}  // namespace sluice::tensor
