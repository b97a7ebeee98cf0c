/// The arithmetic of one element, of plain floats or of a vector of them: the one source for every
/// instruction set and for a device's kernels (gpu/kernels.h), which nvcc compiles.
///
/// Every function is a member of a type that has the architecture in its name; see kernel.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_adam/kernel.h"
#include "engine/base/device_code.h"

namespace sluice::cpu_adam {

/// A vector of floats, and what is done with it; the others are in simd.h.
template <class Arch>
struct Simd;

template <>
struct Simd<Scalar> {
  using F = float;
  using D = double;
  using I = std::uint32_t;
  static constexpr std::size_t kLanes = 1;
  static constexpr std::size_t kDoubles = 1;

  SLUICE_DEVICE static F fma(F a, F b, F c) { return __builtin_fmaf(a, b, c); }
  SLUICE_DEVICE static F sqrt(F x) { return __builtin_sqrtf(x); }
  SLUICE_DEVICE static F load(const float* p) { return *p; }
  SLUICE_DEVICE static F load(const Bf16Bits* p) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(p->bits) << 16);
  }
  SLUICE_DEVICE static F load(const Fp16Bits* p) {
    const std::uint32_t sign = (p->bits & 0x8000U) << 16;
    const std::uint32_t size = p->bits & 0x7fffU;
    // With the exponent of a float it is 2^112 too small, exactly, subnormals too.
    const float whole = __builtin_bit_cast(float, size << 13) * 0x1p112F;
    auto wide = __builtin_bit_cast(std::uint32_t, whole);
    if (size >= 0x7c00U) wide = (size << 13) | (size > 0x7c00U ? 0x7fc00000U : 0x7f800000U);
    return __builtin_bit_cast(float, sign | wide);
  }
  static I bits(F x) { return __builtin_bit_cast(I, x); }
  static F floats(I x) { return __builtin_bit_cast(F, x); }
  /// Its sign spread over the upper half.
  static F load(const LowBits* p) {
    return floats(static_cast<I>(static_cast<std::int16_t>(p->bits)));
  }
  SLUICE_DEVICE static I round_bf16(F x) {
    const auto u = __builtin_bit_cast(I, x);
    const I rounded = u + 0x7fffU + ((u >> 16) & 1U);
    return (x != x ? u | 0x400000U : rounded) >> 16;
  }
  SLUICE_DEVICE static void store(float* p, F x) { *p = x; }
  SLUICE_DEVICE static void store(double* p, D x) { *p = x; }
  SLUICE_DEVICE static void store(Bf16Bits* p, F x) {
    p->bits = static_cast<std::uint16_t>(round_bf16(x));
  }
  static void store(LowBits* p, F x) { p->bits = static_cast<std::uint16_t>(bits(x)); }
  // As to_fp16() in base/dtype.h.
  SLUICE_DEVICE static void store(Fp16Bits* p, F x) {
    const auto u = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t size = u & 0x7fffffffU;
    std::uint32_t half = (size - (112U << 23) + 0xfffU + ((size >> 13) & 1U)) >> 13;
    if (size < 0x38800000U) {
      const float sum = __builtin_bit_cast(float, size) + 0.5F;
      half = __builtin_bit_cast(std::uint32_t, sum) - 0x3f000000U;
    }
    if (size >= 0x47800000U) half = 0x7c00U;
    if (size > 0x7f800000U) half = 0x7e00U | ((size >> 13) & 0x3ffU);
    p->bits = static_cast<std::uint16_t>(((u >> 16) & 0x8000U) | half);
  }
  template <class T>
  static void stream(T* p, F x) {
    store(p, x);
  }
  static void fence() {}
  SLUICE_DEVICE static void add_squares(D* sums, F x) {
    const D wide = x;
    sums[0] += wide * wide;
  }
};

/// An element of a gradient, which may have two terms.
template <class Arch>
struct Element {
  using S = Simd<Arch>;

  template <class T>
  SLUICE_DEVICE static typename S::F load(const T* p, std::size_t i) {
    return S::load(p + i);
  }
  template <class T>
  SLUICE_DEVICE static typename S::F load(const Two<T>& p, std::size_t i) {
    return S::load(p.first + i) + S::load(p.second + i);
  }
};

/// [Note: Split masters] (optimizer.h), on integers.
template <class Arch>
struct SplitMaster {
  using S = Simd<Arch>;
  using F = typename S::F;
  using I = typename S::I;

  /// `low`: as it is loaded.
  static F join(F weight, F low, F v) {
    // In this order: a signed sum with -0 would leave its range in between.
    return S::floats(S::bits(weight) + (S::bits(low) + ((S::bits(v) >> 15) & I(0x10000))));
  }
  static F plain(F v) { return S::floats(S::bits(v) & I(0x7fffffff)); }
  /// v, with its mark where the master is not its weight and lower half alone.
  static F marked(F master, F v) {
    const I whole = S::bits(master), weight = S::round_bf16(master) << 16;
    const I low = ((whole & I(0xffff)) ^ I(0x8000)) - I(0x8000);
    const I mark = ((whole - weight - low) & I(0x10000)) << 15;
    return S::floats(S::bits(plain(v)) | mark);
  }
};

/// [Note: Adam arithmetic] (optimizer.h).
template <class Arch>
struct AdamStep {
  using S = Simd<Arch>;
  using F = typename S::F;
  struct Values {
    F master, m, v;
  };

  explicit AdamStep(const Factors& f)
      : clip(f.clip),
        l2(f.l2),
        beta1(f.beta1),
        one_minus_beta1(f.one_minus_beta1),
        beta2(f.beta2),
        one_minus_beta2(f.one_minus_beta2),
        scale2(f.scale2),
        eps(f.eps),
        step(f.step),
        decay(f.decay) {}

  SLUICE_DEVICE Values operator()(F gradient, const Values& old) const {
    const F g = S::fma(l2, old.master, gradient * clip);
    const F m = S::fma(one_minus_beta1, g, beta1 * old.m);
    const F v = S::fma(one_minus_beta2 * g, g, beta2 * old.v);
    const F ratio = m / S::fma(S::sqrt(v), scale2, eps);
    const F change = S::fma(step, ratio, decay * old.master);
    return {old.master - change, m, v};
  }

  F clip, l2, beta1, one_minus_beta1, beta2, one_minus_beta2, scale2, eps, step, decay;
};

/// Sums of squares always run in this many lanes, whatever the vectors are: element i of a grain is
/// added to lane i mod 16.
template <class Arch>
struct NormLanes {
  static constexpr std::size_t kCount = 16;

  /// Their sum, in the order that Optimizer::grain_norms() promises.
  SLUICE_DEVICE static double fold(double* lanes) {
    for (std::size_t half = kCount / 2; half != 0; half /= 2) {
      for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    }
    return lanes[0];
  }
};

}  // namespace sluice::cpu_adam
