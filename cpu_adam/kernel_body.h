/// The kernels, written once; only kernel_*.cpp include this.
#pragma once

#include "cpu_adam/kernel.h"
#include "cpu_adam/simd.h"

namespace sluice::cpu_adam {

/// Sums of squares always run in this many lanes, whatever the vectors are: element i of a grain is
/// added to lane i mod 16.
inline constexpr std::size_t kNormLanes = 16;

/// A pointer to nothing that is written.
struct Nowhere {};

/// [Note: Adam arithmetic] (optimizer.h), on one vector.
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

  Values operator()(F gradient, const Values& old) const {
    const F g = S::fma(l2, old.master, gradient * clip);
    const F m = S::fma(one_minus_beta1, g, beta1 * old.m);
    const F v = S::fma(one_minus_beta2 * g, g, beta2 * old.v);
    const F ratio = m / S::fma(S::sqrt(v), scale2, eps);
    const F change = S::fma(step, ratio, decay * old.master);
    return {old.master - change, m, v};
  }

  F clip, l2, beta1, one_minus_beta1, beta2, one_minus_beta2, scale2, eps, step, decay;
};

/// Loads and stores of whole vectors and of the last few elements. Those go through a vector padded
/// with zeros, so that every element sees the same instructions.
template <class Arch>
struct Memory {
  using S = Simd<Arch>;
  using F = typename S::F;

  template <class T>
  static F load_some(const T* p, std::size_t n) {
    T padded[S::kLanes] = {};
    for (std::size_t i = 0; i < n; ++i) padded[i] = p[i];
    return S::load(padded);
  }
  template <class T>
  static void store_some(T* p, F x, std::size_t n) {
    T padded[S::kLanes];
    S::store(padded, x);
    for (std::size_t i = 0; i < n; ++i) p[i] = padded[i];
  }
  static void store_some(Nowhere*, F, std::size_t) {}

  template <Write kWrite, class T>
  static void store(T* p, F x) {
    if constexpr (kWrite == Write::kStreaming) {
      S::stream(p, x);
    } else {
      S::store(p, x);
    }
  }
  template <Write kWrite>
  static void store(Nowhere*, F) {}

  static bool on_line(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }
};

/// The update for one combination of types.
template <class Arch, Write kWrite, class Grad, class Pub>
struct UpdateLoop {
  using S = Simd<Arch>;
  using M = Memory<Arch>;
  using Values = typename AdamStep<Arch>::Values;

  static Pub* at(Pub* p, std::size_t i) {
    if constexpr (__is_same(Pub, Nowhere)) {
      return p;
    } else {
      return p + i;
    }
  }

  static void run(const UpdateArgs& a) {
    const AdamStep<Arch> adam(a.factors);
    const auto* gradient = static_cast<const Grad*>(a.gradient.data);
    auto* published = static_cast<Pub*>(a.published.data);
    std::size_t i = 0;
    for (; i + S::kLanes <= a.count; i += S::kLanes) {
      const Values fresh =
          adam(S::load(gradient + i), {S::load(a.master + i), S::load(a.m + i), S::load(a.v + i)});
      M::template store<kWrite>(a.master + i, fresh.master);
      M::template store<kWrite>(a.m + i, fresh.m);
      M::template store<kWrite>(a.v + i, fresh.v);
      M::template store<kWrite>(at(published, i), fresh.master);
    }
    if (const std::size_t n = a.count - i; n != 0) {
      const Values fresh =
          adam(M::load_some(gradient + i, n),
               {M::load_some(a.master + i, n), M::load_some(a.m + i, n), M::load_some(a.v + i, n)});
      M::store_some(a.master + i, fresh.master, n);
      M::store_some(a.m + i, fresh.m, n);
      M::store_some(a.v + i, fresh.v, n);
      M::store_some(at(published, i), fresh.master, n);
    }
    // Streamed stores are unordered: whoever is told that the update is done must see them.
    if constexpr (kWrite == Write::kStreaming) S::fence();
  }
};

/// Picks the loop for the types at hand.
template <class Arch>
struct UpdateChoice {
  template <Write kWrite, class Grad>
  static void by_published(const UpdateArgs& a) {
    switch (a.published.type) {
      case Elem::kNone:
        return UpdateLoop<Arch, kWrite, Grad, Nowhere>::run(a);
      case Elem::kF32:
        return UpdateLoop<Arch, kWrite, Grad, float>::run(a);
      case Elem::kBf16:
        return UpdateLoop<Arch, kWrite, Grad, std::uint16_t>::run(a);
    }
  }
  template <Write kWrite>
  static void by_gradient(const UpdateArgs& a) {
    if (a.gradient.type == Elem::kF32) {
      by_published<kWrite, float>(a);
    } else {
      by_published<kWrite, std::uint16_t>(a);
    }
  }
};

template <class Arch>
void KernelsFor<Arch>::update(const UpdateArgs& a) noexcept {
  using M = Memory<Arch>;
  const bool on_lines =
      M::on_line(a.master) && M::on_line(a.m) && M::on_line(a.v) && M::on_line(a.published.data);
  if (a.write == Write::kStreaming && on_lines) {
    UpdateChoice<Arch>::template by_gradient<Write::kStreaming>(a);
  } else {
    UpdateChoice<Arch>::template by_gradient<Write::kCached>(a);
  }
}

/// Simple element-wise loops over one or two sources.
template <class Arch>
struct Loops {
  using S = Simd<Arch>;
  using F = typename S::F;
  using D = typename S::D;
  using M = Memory<Arch>;

  template <class In>
  static double sum_squares(const In* in, std::size_t count) {
    constexpr std::size_t kSums = S::kLanes / S::kDoubles;
    D sums[kNormLanes / S::kDoubles];
    for (D& sum : sums) sum = D(0.0);
    std::size_t i = 0;
    for (; i + kNormLanes <= count; i += kNormLanes) {
#pragma GCC unroll 16
      for (std::size_t k = 0; k < kNormLanes / S::kLanes; ++k) {
        S::add_squares(sums + k * kSums, S::load(in + i + k * S::kLanes));
      }
    }
    for (std::size_t k = 0; i < count; ++k, i += S::kLanes) {
      const std::size_t n = count - i < S::kLanes ? count - i : S::kLanes;
      S::add_squares(sums + k * kSums, M::load_some(in + i, n));
    }
    double lanes[kNormLanes];
    for (std::size_t k = 0; k < kNormLanes / S::kDoubles; ++k) {
      S::store(lanes + k * S::kDoubles, sums[k]);
    }
    for (std::size_t half = kNormLanes / 2; half != 0; half /= 2) {
      for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    }
    return lanes[0];
  }

  template <class A, class B>
  static void add(float* out, const A* a, const B* b, std::size_t count) {
    std::size_t i = 0;
    for (; i + S::kLanes <= count; i += S::kLanes)
      S::store(out + i, S::load(a + i) + S::load(b + i));
    if (const std::size_t n = count - i; n != 0) {
      M::store_some(out + i, M::load_some(a + i, n) + M::load_some(b + i, n), n);
    }
  }

  template <class Out, class In>
  static void convert(Out* out, const In* in, std::size_t count) {
    std::size_t i = 0;
    for (; i + S::kLanes <= count; i += S::kLanes) S::store(out + i, S::load(in + i));
    if (const std::size_t n = count - i; n != 0) M::store_some(out + i, M::load_some(in + i, n), n);
  }
};

template <class Arch>
double KernelsFor<Arch>::sum_squares(Source in, std::size_t count) noexcept {
  if (in.type == Elem::kF32) {
    return Loops<Arch>::sum_squares(static_cast<const float*>(in.data), count);
  }
  return Loops<Arch>::sum_squares(static_cast<const std::uint16_t*>(in.data), count);
}

template <class Arch>
void KernelsFor<Arch>::add(float* out, Source a, Source b, std::size_t count) noexcept {
  const auto* a32 = static_cast<const float*>(a.data);
  const auto* a16 = static_cast<const std::uint16_t*>(a.data);
  const auto* b32 = static_cast<const float*>(b.data);
  const auto* b16 = static_cast<const std::uint16_t*>(b.data);
  if (a.type == Elem::kF32 && b.type == Elem::kF32) return Loops<Arch>::add(out, a32, b32, count);
  if (a.type == Elem::kF32) return Loops<Arch>::add(out, a32, b16, count);
  if (b.type == Elem::kF32) return Loops<Arch>::add(out, a16, b32, count);
  return Loops<Arch>::add(out, a16, b16, count);
}

template <class Arch>
void KernelsFor<Arch>::convert(Sink out, Source in, std::size_t count) noexcept {
  auto* out32 = static_cast<float*>(out.data);
  auto* out16 = static_cast<std::uint16_t*>(out.data);
  const auto* in32 = static_cast<const float*>(in.data);
  const auto* in16 = static_cast<const std::uint16_t*>(in.data);
  if (in.type == Elem::kBf16) return Loops<Arch>::convert(out32, in16, count);
  if (out.type == Elem::kF32) return Loops<Arch>::convert(out32, in32, count);
  return Loops<Arch>::convert(out16, in32, count);
}

}  // namespace sluice::cpu_adam
