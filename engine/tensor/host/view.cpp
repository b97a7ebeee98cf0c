#include "engine/tensor/view.h"

#include <ATen/ops/from_blob.h>

namespace sluice::tensor {

at::Device device() {
  return at::kCPU;
}

void clear(std::span<std::byte> bytes) {
  at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())},
                at::TensorOptions(at::kByte))
      .zero_();
}

}  // namespace sluice::tensor
