/// The kernels, written once; only kernel_*.cpp include this.
#pragma once

#include "cpu_adam/element.h"
#include "cpu_adam/kernel.h"
#include "cpu_adam/simd.h"

namespace sluice::cpu_adam {

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
  static F load_some(const T* p, std::size_t first, std::size_t n) {
    return load_some(p + first, n);
  }
  template <class T>
  static F load_some(const Two<T>& p, std::size_t first, std::size_t n) {
    return load_some(p.first + first, n) + load_some(p.second + first, n);
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

/// The update, for every combination of types.
template <class Arch, Write kWrite>
struct UpdateLoop {
  using S = Simd<Arch>;
  using M = Memory<Arch>;
  using E = Element<Arch>;
  using Values = typename AdamStep<Arch>::Values;

  template <class Pub>
  static Pub* at(Pub* p, std::size_t i) {
    if constexpr (__is_same(Pub, Nowhere)) {
      return p;
    } else {
      return p + i;
    }
  }

  static void run(const UpdateArgs& a) {
    Typed<Arch>::read(a.gradient, [&](const auto& gradient) {
      Typed<Arch>::write(a.published, [&](auto* published) { run(a, gradient, published); });
    });
  }

  template <class Grad, class Pub>
  static void run(const UpdateArgs& a, const Grad& gradient, Pub* published) {
    const AdamStep<Arch> adam(a.factors);
    std::size_t i = 0;
    for (; i + S::kLanes <= a.count; i += S::kLanes) {
      const Values fresh =
          adam(E::load(gradient, i), {S::load(a.master + i), S::load(a.m + i), S::load(a.v + i)});
      M::template store<kWrite>(a.master + i, fresh.master);
      M::template store<kWrite>(a.m + i, fresh.m);
      M::template store<kWrite>(a.v + i, fresh.v);
      M::template store<kWrite>(at(published, i), fresh.master);
    }
    if (const std::size_t n = a.count - i; n != 0) {
      const Values fresh =
          adam(M::load_some(gradient, i, n),
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

template <class Arch>
void KernelsFor<Arch>::update(const UpdateArgs& a) noexcept {
  using M = Memory<Arch>;
  const bool on_lines =
      M::on_line(a.master) && M::on_line(a.m) && M::on_line(a.v) && M::on_line(a.published.data);
  if (a.write == Write::kStreaming && on_lines) {
    UpdateLoop<Arch, Write::kStreaming>::run(a);
  } else {
    UpdateLoop<Arch, Write::kCached>::run(a);
  }
}

/// Simple element-wise loops over one or two sources.
template <class Arch>
struct Loops {
  using S = Simd<Arch>;
  using F = typename S::F;
  using D = typename S::D;
  using M = Memory<Arch>;
  using E = Element<Arch>;
  static constexpr std::size_t kNormLanes = NormLanes<Arch>::kCount;

  template <class In>
  static double sum_squares(const In& in, std::size_t count) {
    constexpr std::size_t kSums = S::kLanes / S::kDoubles;
    D sums[kNormLanes / S::kDoubles];
    for (D& sum : sums) sum = D(0.0);
    std::size_t i = 0;
    for (; i + kNormLanes <= count; i += kNormLanes) {
#pragma GCC unroll 16
      for (std::size_t k = 0; k < kNormLanes / S::kLanes; ++k) {
        S::add_squares(sums + k * kSums, E::load(in, i + k * S::kLanes));
      }
    }
    for (std::size_t k = 0; i < count; ++k, i += S::kLanes) {
      const std::size_t n = count - i < S::kLanes ? count - i : S::kLanes;
      S::add_squares(sums + k * kSums, M::load_some(in, i, n));
    }
    double lanes[kNormLanes];
    for (std::size_t k = 0; k < kNormLanes / S::kDoubles; ++k) {
      S::store(lanes + k * S::kDoubles, sums[k]);
    }
    return NormLanes<Arch>::fold(lanes);
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

  template <class In>
  static void convert(Nowhere*, const In*, std::size_t) {}
  template <class Out, class In>
  static void convert(Out* out, const In* in, std::size_t count) {
    std::size_t i = 0;
    for (; i + S::kLanes <= count; i += S::kLanes) S::store(out + i, S::load(in + i));
    if (const std::size_t n = count - i; n != 0) M::store_some(out + i, M::load_some(in + i, n), n);
  }
};

template <class Arch>
double KernelsFor<Arch>::sum_squares(Terms in, std::size_t count) noexcept {
  return Typed<Arch>::read(
      in, [&](const auto& values) { return Loops<Arch>::sum_squares(values, count); });
}

template <class Arch>
void KernelsFor<Arch>::add(float* out, Source a, Source b, std::size_t count) noexcept {
  Typed<Arch>::read(a, [&](const auto* first) {
    Typed<Arch>::read(b, [&](const auto* second) { Loops<Arch>::add(out, first, second, count); });
  });
}

template <class Arch>
void KernelsFor<Arch>::convert(Sink out, Source in, std::size_t count) noexcept {
  if (out.type == Elem::kF32) {
    auto* wide = static_cast<float*>(out.data);
    Typed<Arch>::read(in, [&](const auto* values) { Loops<Arch>::convert(wide, values, count); });
  } else {
    const auto* wide = static_cast<const float*>(in.data);
    Typed<Arch>::write(out, [&](auto* values) { Loops<Arch>::convert(values, wide, count); });
  }
}

}  // namespace sluice::cpu_adam
