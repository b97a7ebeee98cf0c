/// Element types of tensors, and bf16 as plain bits.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "engine/base/units.h"

namespace sluice {

enum class DType : std::uint8_t { kF32, kBf16 };

constexpr Bytes size_of(DType t) {
  switch (t) {
    case DType::kF32:
      return 4;
    case DType::kBf16:
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

/// IEEE half precision, which some files hold.
struct Fp16 {
  std::uint16_t bits = 0;
};
static_assert(sizeof(Fp16) == 2);

constexpr float to_float(Fp16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t fraction = value.bits & 0x3ffU;
  if (exponent == 0) {  // of 2^-24, exactly
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace sluice
