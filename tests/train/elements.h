/// Numbers of any dtype as float, one by one.
#pragma once

#include <cstddef>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/train/op_bytes.h"

namespace sluice::train {

inline float element(DType dtype, OpBytes::Bytes bytes, std::size_t i) {
  switch (dtype) {
    case DType::kF32:
      return OpBytes::as<float>(bytes)[i];
    case DType::kBf16:
      return to_float(OpBytes::as<Bf16>(bytes)[i]);
    case DType::kF16:
      return to_float(OpBytes::as<Fp16>(bytes)[i]);
  }
  throw Error(Errc::kLogic, "no such dtype");
}

/// Rounded to it.
inline void set_element(DType dtype, OpBytes::Bytes bytes, std::size_t i, float value) {
  switch (dtype) {
    case DType::kF32:
      OpBytes::as<float>(bytes)[i] = value;
      return;
    case DType::kBf16:
      OpBytes::as<Bf16>(bytes)[i] = to_bf16(value);
      return;
    case DType::kF16:
      OpBytes::as<Fp16>(bytes)[i] = to_fp16(value);
      return;
  }
}

}  // namespace sluice::train
