/// The inner loops, one copy per instruction set; [Note: Adam arithmetic] in optimizer.h.
///
/// Kernel files (kernel_*.cpp) are compiled with -m flags, so they include this, element.h, simd.h,
/// kernel_body.h and xsimd, nothing else: an inline function of any other header, compiled there
/// for AVX-512, could be the copy that the linker keeps for the whole program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::cpu_adam {

enum class Elem : std::uint8_t { kNone, kF32, kBf16, kF16 };

/// What base/dtype.h's Bf16 and Fp16 hold.
struct Bf16Bits {
  std::uint16_t bits;
};
struct Fp16Bits {
  std::uint16_t bits;
};
/// The lower half of a float.
struct LowBits {
  std::uint16_t bits;
};
/// Where nothing is written.
struct Nowhere {};

struct Source {
  const void* data = nullptr;
  Elem type = Elem::kNone;
};

/// One array, or, with a second of the same type, the sums of their elements.
struct Terms {
  Source first;
  const void* second = nullptr;
};

/// The same of a known type.
template <class T>
struct Two {
  const T* first;
  const T* second;
};

struct Sink {
  void* data = nullptr;
  Elem type = Elem::kNone;
};

/// The constants of one update, each rounded to float once.
struct Factors {
  float clip;
  float l2;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float scale2;  // 1 / sqrt(bias_correction2)
  float eps;
  float step;   // lr / bias_correction1
  float decay;  // lr * weight_decay
};

enum class Write : std::uint8_t { kCached, kStreaming };

/// Masters in two halves: [Note: Split masters] in optimizer.h.
struct Halves {
  LowBits* low = nullptr;  // null: there are none
  const Bf16Bits* weights = nullptr;
};

struct UpdateArgs {
  float* master = nullptr;  // null where there are `halves`; then weights are published in bf16
  Halves halves = {};
  float* m;
  float* v;
  Terms gradient;
  Sink published;
  std::size_t count;
  Factors factors;
  Write write;  // streaming falls back to cached where an output is not on a 64-byte line
};

/// Plain function pointers, so that the rest of the room knows no instruction set.
struct Kernels {
  void (*update)(const UpdateArgs&) noexcept = nullptr;
  /// Of at most one grain, in 16 lanes of double.
  double (*sum_squares)(Terms, std::size_t count) noexcept = nullptr;
  /// out = a + b; out may be a or b.
  void (*add)(float* out, Source a, Source b, std::size_t count) noexcept = nullptr;
  /// One of the two is fp32.
  void (*convert)(Sink out, Source in, std::size_t count) noexcept = nullptr;
  /// `marked` is v with the marks of the halves; `v` may be null.
  void (*join)(float* master, float* v, Halves in, const float* marked,
               std::size_t count) noexcept = nullptr;
  void (*split)(LowBits* low, float* marked, const float* master, const float* v,
                std::size_t count) noexcept = nullptr;
};

/// Defined in kernel_body.h, instantiated once per instruction set.
template <class Arch>
struct KernelsFor {
  static void update(const UpdateArgs& a) noexcept;
  static double sum_squares(Terms in, std::size_t count) noexcept;
  static void add(float* out, Source a, Source b, std::size_t count) noexcept;
  static void convert(Sink out, Source in, std::size_t count) noexcept;
  static void join(float* master, float* v, Halves in, const float* marked,
                   std::size_t count) noexcept;
  static void split(LowBits* low, float* marked, const float* master, const float* v,
                    std::size_t count) noexcept;
};

/// Calls a function with a pointer to what a source or a sink holds.
template <class Arch>
struct Typed {
  template <class F>
  static auto read(Source in, F f) {
    if (in.type == Elem::kBf16) return f(static_cast<const Bf16Bits*>(in.data));
    if (in.type == Elem::kF16) return f(static_cast<const Fp16Bits*>(in.data));
    return f(static_cast<const float*>(in.data));
  }
  /// With a pointer, or with Two of them.
  template <class F>
  static auto read(Terms in, F f) {
    return read(in.first, [&](const auto* first) {
      return in.second == nullptr ? f(first) : f(two(first, in.second));
    });
  }
  template <class T>
  static Two<T> two(const T* first, const void* second) {
    return {first, static_cast<const T*>(second)};
  }
  template <class F>
  static void write(Sink out, F f) {
    switch (out.type) {
      case Elem::kNone:
        return f(static_cast<Nowhere*>(out.data));
      case Elem::kF32:
        return f(static_cast<float*>(out.data));
      case Elem::kBf16:
        return f(static_cast<Bf16Bits*>(out.data));
      case Elem::kF16:
        return f(static_cast<Fp16Bits*>(out.data));
    }
  }
};

/// Plain C++, no vectors: the tag that xsimd 8.1 lacks. A device's threads compute with it too.
struct Scalar {};

}  // namespace sluice::cpu_adam
