/// Sixteen neighbours of a row in fp32, in as many registers as they take; only rows_*.h include
/// this. Everything here has the architecture in its name: see rows.h.
#pragma once

#include <cstdint>

#include "engine/model/host/rows.h"

#define SLUICE_LANES_INLINE __attribute__((always_inline)) inline

namespace sluice::model::rows {

/// All lanes, or the first n < 16 at the end of a row, of which nothing behind is read or written.
struct Whole {};
struct Some {
  std::int64_t n;
};

template <class Arch>
struct Lanes {
  static constexpr int kCount = 16, kEach = Arch::kFloats, kRegisters = kCount / kEach;
  // NOLINTBEGIN(modernize-use-using, modernize-avoid-c-arrays): only a typedef takes the attribute
  typedef float F __attribute__((vector_size(kEach * 4)));
  typedef std::uint32_t U __attribute__((vector_size(kEach * 4)));
  typedef std::uint16_t H __attribute__((vector_size(kEach * 2)));
  F at[static_cast<unsigned>(kRegisters)];
  // NOLINTEND(modernize-use-using, modernize-avoid-c-arrays)

  SLUICE_LANES_INLINE static U bits(F f) { return __builtin_bit_cast(U, f); }
  SLUICE_LANES_INLINE static F floats(U u) { return __builtin_bit_cast(F, u); }

  SLUICE_LANES_INLINE static Lanes all(float value) {
    Lanes r;
    for (F& f : r.at) f = F{} + value;
    return r;
  }

  template <class Op>
  SLUICE_LANES_INLINE static Lanes made(Op op) {
    Lanes r;
    for (int i = 0; i < kRegisters; ++i) r.at[i] = op(i);
    return r;
  }
  SLUICE_LANES_INLINE friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return made([&](int i) { return a.at[i] + b.at[i]; });
  }
  SLUICE_LANES_INLINE friend Lanes operator-(const Lanes& a, const Lanes& b) {
    return made([&](int i) { return a.at[i] - b.at[i]; });
  }
  SLUICE_LANES_INLINE friend Lanes operator*(const Lanes& a, const Lanes& b) {
    return made([&](int i) { return a.at[i] * b.at[i]; });
  }
  SLUICE_LANES_INLINE friend Lanes operator/(const Lanes& a, const Lanes& b) {
    return made([&](int i) { return a.at[i] / b.at[i]; });
  }
  /// The greater one, b where a is NaN.
  SLUICE_LANES_INLINE static Lanes greater(const Lanes& a, const Lanes& b) {
    return made([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
  }
  /// x within bounds; NaN stays.
  SLUICE_LANES_INLINE static Lanes clamped(const Lanes& x, float least, float most) {
    const F low = F{} + least, high = F{} + most;
    return made([&](int i) {
      const F raised = x.at[i] < low ? low : x.at[i];
      return raised > high ? high : raised;
    });
  }
  SLUICE_LANES_INLINE static Lanes where_negative(const Lanes& x, const Lanes& then,
                                                  const Lanes& otherwise) {
    return made([&](int i) { return x.at[i] < F{} ? then.at[i] : otherwise.at[i]; });
  }
  SLUICE_LANES_INLINE static Lanes magnitude(const Lanes& x) {
    return made([&](int i) { return floats(bits(x.at[i]) & 0x7fffffffU); });
  }

  // Register by register: what a copy of all of them stores in other pieces has to be waited for.
  SLUICE_LANES_INLINE static Lanes load(const float* p) {
    return made([&](int i) {
      F f;
      __builtin_memcpy(&f, p + i * kEach, sizeof f);
      return f;
    });
  }
  SLUICE_LANES_INLINE static Lanes load(const Bf16* p) {
    return made([&](int i) { return floats(halves(p, i) << 16); });
  }
  // With the exponent of a float a half is 2^112 too small, exactly, subnormals too.
  SLUICE_LANES_INLINE static Lanes load(const Fp16* p) {
    return made([&](int i) {
      const U half = halves(p, i), size = half & 0x7fffU;
      const U finite = bits(floats(size << 13) * 0x1p112F);
      const U quiet = size > 0x7c00U ? U{} + 0x400000U : U{};
      const U wide = size >= 0x7c00U ? (size << 13) | 0x7f800000U | quiet : finite;
      return floats(((half & 0x8000U) << 16) | wide);
    });
  }

  SLUICE_LANES_INLINE void store(float* p) const {
    for (int i = 0; i < kRegisters; ++i) __builtin_memcpy(p + i * kEach, &at[i], sizeof at[i]);
  }
  SLUICE_LANES_INLINE void store(Bf16* p) const {
    for (int i = 0; i < kRegisters; ++i) put(p, i, rounded_to_bf16(at[i]) >> 16);
  }
  /// Each followed by its neighbour in `next`.
  SLUICE_LANES_INLINE void store_pairs(const Lanes& next, Bf16* p) const {
    for (int i = 0; i < kRegisters; ++i) {
      const U pair = rounded_to_bf16(at[i]) >> 16 | (rounded_to_bf16(next.at[i]) & 0xffff0000U);
      __builtin_memcpy(p + 2 * i * kEach, &pair, sizeof pair);
    }
  }
  SLUICE_LANES_INLINE void store(Fp16* p) const {
    for (int i = 0; i < kRegisters; ++i) {
      const U u = bits(at[i]), size = u & 0x7fffffffU;
      const U normal = (size - (112U << 23) + 0xfffU + ((size >> 13) & 1U)) >> 13;
      const U small = bits(floats(size) + 0.5F) - 0x3f000000U;
      U half = size < 0x38800000U ? small : normal;
      half = size >= 0x47800000U ? U{} + 0x7c00U : half;
      half = size > 0x7f800000U ? 0x7e00U | ((size >> 13) & 0x3ffU) : half;
      put(p, i, ((u >> 16) & 0x8000U) | half);
    }
  }

  template <class T>
  SLUICE_LANES_INLINE static Lanes load(const T* p, Whole) {
    return load(p);
  }
  /// Zero behind the last one.
  template <class T>
  SLUICE_LANES_INLINE static Lanes load(const T* p, Some some) {
    T padded[kCount] = {};  // NOLINT(modernize-avoid-c-arrays)
    for (std::int64_t i = 0; i < some.n; ++i) padded[i] = p[i];
    return load(padded);
  }
  template <class T>
  SLUICE_LANES_INLINE void store(T* p, Whole) const {
    store(p);
  }
  template <class T>
  SLUICE_LANES_INLINE void store(T* p, Some some) const {
    T padded[kCount];  // NOLINT(modernize-avoid-c-arrays)
    store(padded);
    for (std::int64_t i = 0; i < some.n; ++i) p[i] = padded[i];
  }

  /// Lanes behind the last one become `value`.
  SLUICE_LANES_INLINE Lanes filled(Whole, float) const { return *this; }
  SLUICE_LANES_INLINE Lanes filled(Some some, float value) const {
    float padded[kCount];  // NOLINT(modernize-avoid-c-arrays)
    store(padded);
    for (std::int64_t i = some.n; i < kCount; ++i) padded[i] = value;
    return load(padded);
  }

  /// One value out of sixteen: each with the one 8 further, then 4, 2, 1.
  template <class Op>
  SLUICE_LANES_INLINE float folded(Op op) const {
    float values[kCount];  // NOLINT(modernize-avoid-c-arrays)
    store(values);
    for (int apart = kCount / 2; apart > 0; apart /= 2) {
      for (int i = 0; i < apart; ++i) values[i] = op(values[i], values[i + apart]);
    }
    return values[0];
  }

 private:
  template <class To, class From>
  SLUICE_LANES_INLINE static To converted(From from) {
    return __builtin_convertvector(from, To);
  }
  // To nearest even, as base/dtype.h; in the upper half.
  SLUICE_LANES_INLINE static U rounded_to_bf16(F f) {
    const U u = bits(f);
    return f != f ? u | 0x400000U : u + 0x7fffU + ((u >> 16) & 1U);
  }
  template <class T>
  SLUICE_LANES_INLINE static U halves(const T* p, int i) {
    H h;
    __builtin_memcpy(&h, p + i * kEach, sizeof h);
    return converted<U>(h);
  }
  template <class T>
  SLUICE_LANES_INLINE static void put(T* p, int i, U low) {
    const H h = converted<H>(low);
    __builtin_memcpy(p + i * kEach, &h, sizeof h);
  }
};

/// Going over a row.
template <class Arch>
struct Row {
  using L = Lanes<Arch>;

  /// body(i, Whole or Some) for the first element i of each sixteen.
  template <class Body>
  SLUICE_LANES_INLINE static void over(std::int64_t width, Body body) {
    std::int64_t i = 0;
    for (; i + L::kCount <= width; i += L::kCount) body(i, Whole{});
    if (i < width) body(i, Some{width - i});
  }

  struct Plus {
    SLUICE_LANES_INLINE L operator()(const L& a, const L& b) const { return a + b; }
    SLUICE_LANES_INLINE float operator()(float a, float b) const { return a + b; }
    static constexpr float kNone = 0.0F;
  };
  struct Greater {
    SLUICE_LANES_INLINE L operator()(const L& a, const L& b) const { return L::greater(a, b); }
    SLUICE_LANES_INLINE float operator()(float a, float b) const { return a > b ? a : b; }
    static constexpr float kNone = -__FLT_MAX__;
  };

  /// values(i, Whole or Some) over a row: whole rounds of 64 in four times sixteen lanes, the rest
  /// in the first sixteen; then the four, two and two; then their lanes.
  template <class Op, class Values>
  SLUICE_LANES_INLINE static float fold(Op op, std::int64_t width, Values values) {
    constexpr std::int64_t kRound = 4 * L::kCount;
    L a = L::all(Op::kNone), b = a, c = a, d = a;
    std::int64_t i = 0;
    for (; i + kRound <= width; i += kRound) {
      a = op(values(i, Whole{}), a);
      b = op(values(i + L::kCount, Whole{}), b);
      c = op(values(i + 2 * L::kCount, Whole{}), c);
      d = op(values(i + 3 * L::kCount, Whole{}), d);
    }
    for (; i + L::kCount <= width; i += L::kCount) a = op(values(i, Whole{}), a);
    if (i < width) {
      const Some some{width - i};
      a = op(values(i, some).filled(some, Op::kNone), a);
    }
    return op(op(a, b), op(c, d)).folded(op);
  }
  template <class Values>
  SLUICE_LANES_INLINE static float sum(std::int64_t width, Values values) {
    return fold(Plus{}, width, values);
  }
};

/// Calls f.operator()<T>() with the type of an element.
template <class Arch>
struct Typed {
  template <class F>
  static void run(Elem elem, F f) {
    switch (elem) {
      case Elem::kF32:
        return f.template operator()<float>();
      case Elem::kBf16:
        return f.template operator()<Bf16>();
      case Elem::kF16:
        return f.template operator()<Fp16>();
    }
  }
};

}  // namespace sluice::model::rows
