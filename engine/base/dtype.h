/// Element types of tensors, and the narrow ones as plain bits.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "engine/base/units.h"

namespace sluice {

enum class DType : std::uint8_t { kF32, kBf16, kF16 };

constexpr Bytes size_of(DType t) {
  switch (t) {
    case DType::kF32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
  }
  return 0;
}
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::kF32:
      return "fp32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "fp16";
  }
  return {};
}

/// The upper half of a float; converted with round to nearest, ties to even; NaN stays NaN.
struct Bf16 {
  std::uint16_t bits = 0;
};
static_assert(sizeof(Bf16) == 2);

constexpr Bf16 to_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((u >> 16) | 0x0040U)};
  return {static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
}

constexpr float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// IEEE half precision; converted with round to nearest, ties to even, to infinity from 65520 on;
/// subnormals are kept, NaN stays NaN and becomes quiet, as hardware has it.
struct Fp16 {
  std::uint16_t bits = 0;
};
static_assert(sizeof(Fp16) == 2);

constexpr Fp16 to_fp16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 16) & 0x8000U;
  const std::uint32_t size = u & 0x7fffffffU;
  std::uint32_t half = 0;
  if (size > 0x7f800000U) {
    half = 0x7e00U | ((size >> 13) & 0x3ffU);
  } else if (size >= 0x47800000U) {  // 2^16
    half = 0x7c00U;
  } else if (size >= 0x38800000U) {  // 2^-14, the smallest normal one
    half = (size - (112U << 23) + 0xfffU + ((size >> 13) & 1U)) >> 13;
  } else {  // a float below 1 has the unit of subnormal halves, 2^-24, from 0.5 on
    const float sum = std::bit_cast<float>(size) + 0.5F;
    half = std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5F);
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

constexpr float to_float(Fp16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t fraction = value.bits & 0x3ffU;
  if (exponent == 0) {  // of 2^-24, exactly
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 112;
  const std::uint32_t quiet = exponent == 0x1fU && fraction != 0 ? 0x400000U : 0U;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13 | quiet);
}

}  // namespace sluice
