/// One vector of floats on one instruction set: xsimd plus the things that xsimd 8.1 lacks.
///
/// fma          xsimd's is multiply-then-add on AVX-512 and plain AVX2; ours rounds once everywhere
/// bf16         loads and stores of the upper halves, rounded to nearest even
/// fp16         loads and stores of IEEE halves, as to_float() and to_fp16() in base/dtype.h
/// LowBits      loads of lower halves, their sign spread over the upper ones; stores of them
/// stream       stores past the caches (aligned to the vector)
/// add_squares  squares of float lanes added to double lanes; exact products, so fma adds nothing
///
/// Every function is a member of a type that has the architecture in its name; see kernel.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "cpu_adam/element.h"
#include "cpu_adam/kernel.h"

namespace sluice::cpu_adam {

/// What all xsimd architectures share.
template <class Arch>
struct Batch {
  using F = xsimd::batch<float, Arch>;
  using D = xsimd::batch<double, Arch>;
  using I = xsimd::batch<std::int32_t, Arch>;
  static constexpr std::size_t kLanes = F::size;
  static constexpr std::size_t kDoubles = D::size;

  static F load(const float* p) { return F::load_unaligned(p); }
  static void store(float* p, F x) { x.store_unaligned(p); }
  static void store(double* p, D x) { x.store_unaligned(p); }
  static F sqrt(F x) { return xsimd::sqrt(x); }
  static I bits(F x) { return xsimd::bitwise_cast<I>(x); }
  static F floats(I x) { return xsimd::bitwise_cast<F>(x); }

  // Each lane's bf16 in its low half, the sign spread over the upper one. Integer rounding as in
  // base/dtype.h; the AVX512_BF16 instruction is no good here: it flushes subnormals. And isnan,
  // for xsimd 8.1 says x != x is false for NaN on AVX.
  static I round_bf16(F x) {
    const I u = xsimd::bitwise_cast<I>(x);
    const I even = (u >> 16) & I(1);
    const F rounded = xsimd::bitwise_cast<F>(u + I(0x7fff) + even);
    const F quiet = xsimd::bitwise_cast<F>(u | I(0x400000));
    return xsimd::bitwise_cast<I>(xsimd::select(xsimd::isnan(x), quiet, rounded)) >> 16;
  }

  // Where no instruction does it; as in Simd<Scalar>. `half` has zeros in the upper half of a lane.
  static F widen_fp16(I half) {
    const I size = half & I(0x7fff);
    const I finite = xsimd::bitwise_cast<I>(xsimd::bitwise_cast<F>(size << 13) * F(0x1p112F));
    const I quiet = xsimd::select(size > I(0x7c00), I(0x400000), I(0));
    const I wide = xsimd::select(size >= I(0x7c00), (size << 13) | I(0x7f800000) | quiet, finite);
    return xsimd::bitwise_cast<F>(((half & I(0x8000)) << 16) | wide);
  }
  // The sign of the half spread over the upper one.
  static I round_fp16(F x) {
    const I u = xsimd::bitwise_cast<I>(x);
    const I size = u & I(0x7fffffff);
    const I normal = (size + I(0xfff - (112 << 23)) + ((size >> 13) & I(1))) >> 13;
    const I small = xsimd::bitwise_cast<I>(xsimd::bitwise_cast<F>(size) + F(0.5F)) - I(0x3f000000);
    const I nan = I(0x7e00) | ((size >> 13) & I(0x3ff));
    I half = xsimd::select(size < I(0x38800000), small, normal);
    half = xsimd::select(size >= I(0x47800000), I(0x7c00), half);
    half = xsimd::select(size > I(0x7f800000), nan, half);
    return ((u >> 16) & I(~0x7fff)) | half;
  }
  // Each lane's 16 bits of that type, their sign spread over the upper half.
  template <class T>
  static I halves(F x) {
    if constexpr (__is_same(T, Bf16Bits)) {
      return round_bf16(x);
    } else if constexpr (__is_same(T, Fp16Bits)) {
      return round_fp16(x);
    } else {
      return (bits(x) << 16) >> 16;
    }
  }
};

#if XSIMD_WITH_AVX512BW
template <>
struct Simd<xsimd::avx512bw> : Batch<xsimd::avx512bw> {
  using Batch::load;
  using Batch::store;
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F load(const Bf16Bits* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static F load(const Fp16Bits* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load(const LowBits* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_cvtepi16_epi32(half));
  }
  template <class T>
  static __m256i narrow(F x) {
    if constexpr (__is_same(T, Fp16Bits)) {
      // All lanes by name: unoptimized, GCC 12 warns of its own _mm512_cvtps_ph.
      return _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT);
    } else {
      return _mm512_cvtepi32_epi16(halves<T>(x));
    }
  }
  template <class T>
  static void store(T* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow<T>(x));
  }
  static void stream(float* p, F x) { _mm512_stream_ps(p, x); }
  template <class T>
  static void stream(T* p, F x) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow<T>(x));
  }
  static void fence() { _mm_sfence(); }
  static void add_squares(D* sums, F x) {
    const D low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const D high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    sums[0] += low * low;
    sums[1] += high * high;
  }
};
#endif

#if XSIMD_WITH_FMA3_AVX2
template <>
struct Simd<xsimd::fma3<xsimd::avx2>> : Batch<xsimd::fma3<xsimd::avx2>> {
  using Batch::load;
  using Batch::store;
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F load(const Bf16Bits* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static F load(const Fp16Bits* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load(const LowBits* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_cvtepi16_epi32(half));
  }
  template <class T>
  static __m128i narrow(F x) {
    if constexpr (__is_same(T, Fp16Bits)) {
      return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    } else {
      const I r = halves<T>(x);
      return _mm_packs_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
    }
  }
  template <class T>
  static void store(T* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow<T>(x));
  }
  static void stream(float* p, F x) { _mm256_stream_ps(p, x); }
  template <class T>
  static void stream(T* p, F x) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow<T>(x));
  }
  static void fence() { _mm_sfence(); }
  static void add_squares(D* sums, F x) {
    const D low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const D high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    sums[0] += low * low;
    sums[1] += high * high;
  }
};
#endif

#if XSIMD_WITH_SSE2
template <>
struct Simd<xsimd::sse2> : Batch<xsimd::sse2> {
  using Batch::load;
  using Batch::store;
  // No such instruction: libm's fmaf lane by lane, correctly rounded, therefore slow.
  static F fma(F a, F b, F c) {
    float x[4], y[4], z[4];
    a.store_unaligned(x);
    b.store_unaligned(y);
    c.store_unaligned(z);
    for (int i = 0; i < 4; ++i) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
    return F::load_unaligned(z);
  }
  static F load(const Bf16Bits* p) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), half));
  }
  static F load(const Fp16Bits* p) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return widen_fp16(_mm_unpacklo_epi16(half, _mm_setzero_si128()));
  }
  static F load(const LowBits* p) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_srai_epi32(_mm_unpacklo_epi16(half, half), 16));
  }
  template <class T>
  static void store(T* p, F x) {
    const I r = halves<T>(x);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(r, r));
  }
  static void stream(float* p, F x) { _mm_stream_ps(p, x); }
  template <class T>
  static void stream(T* p, F x) {  // no 8-byte one from SSE registers
    store(p, x);
  }
  static void fence() { _mm_sfence(); }
  static void add_squares(D* sums, F x) {
    const D low = _mm_cvtps_pd(x);
    const D high = _mm_cvtps_pd(_mm_movehl_ps(x, x));
    sums[0] += low * low;
    sums[1] += high * high;
  }
};
#endif

#if XSIMD_WITH_NEON64
template <>
struct Simd<xsimd::neon64> : Batch<xsimd::neon64> {
  using Batch::load;
  using Batch::store;
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F load(const Bf16Bits* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&p->bits), 16));
  }
  static F load(const Fp16Bits* p) {
    return widen_fp16(vreinterpretq_s32_u32(vmovl_u16(vld1_u16(&p->bits))));
  }
  static F load(const LowBits* p) {
    return vreinterpretq_f32_s32(vmovl_s16(vreinterpret_s16_u16(vld1_u16(&p->bits))));
  }
  template <class T>
  static void store(T* p, F x) {
    const I r = halves<T>(x);
    vst1_u16(&p->bits, vreinterpret_u16_s16(vmovn_s32(r)));
  }
  // C has no intrinsic for STNP, and its hint is often ignored.
  template <class T>
  static void stream(T* p, F x) {
    store(p, x);
  }
  static void fence() {}
  static void add_squares(D* sums, F x) {
    const D low = vcvt_f64_f32(vget_low_f32(x));
    const D high = vcvt_high_f64_f32(x);
    sums[0] += low * low;
    sums[1] += high * high;
  }
};
#endif

}  // namespace sluice::cpu_adam
