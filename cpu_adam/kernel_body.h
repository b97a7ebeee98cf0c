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

template <class Arch>
using StateValues = typename AdamStep<Arch>::Values;

/// State with masters of their own.
template <class Arch>
struct WholeState {
  using S = Simd<Arch>;
  using M = Memory<Arch>;
  using Values = StateValues<Arch>;

  Values load(std::size_t i) const { return {S::load(master + i), S::load(m + i), S::load(v + i)}; }
  Values load_some(std::size_t i, std::size_t n) const {
    return {M::load_some(master + i, n), M::load_some(m + i, n), M::load_some(v + i, n)};
  }
  template <Write kWrite>
  void store(std::size_t i, const Values& fresh) const {
    M::template store<kWrite>(master + i, fresh.master);
    M::template store<kWrite>(m + i, fresh.m);
    M::template store<kWrite>(v + i, fresh.v);
  }
  void store_some(std::size_t i, const Values& fresh, std::size_t n) const {
    M::store_some(master + i, fresh.master, n);
    M::store_some(m + i, fresh.m, n);
    M::store_some(v + i, fresh.v, n);
  }

  float *master, *m, *v;
};

/// State whose masters' upper halves are the weights. Whoever publishes stores those.
template <class Arch>
struct SplitState {
  using S = Simd<Arch>;
  using F = typename S::F;
  using M = Memory<Arch>;
  using Split = SplitMaster<Arch>;
  using Values = StateValues<Arch>;

  Values load(std::size_t i) const {
    return joined(S::load(halves.weights + i), S::load(halves.low + i), S::load(m + i),
                  S::load(v + i));
  }
  Values load_some(std::size_t i, std::size_t n) const {
    return joined(M::load_some(halves.weights + i, n), M::load_some(halves.low + i, n),
                  M::load_some(m + i, n), M::load_some(v + i, n));
  }
  template <Write kWrite>
  void store(std::size_t i, const Values& fresh) const {
    M::template store<kWrite>(halves.low + i, fresh.master);
    M::template store<kWrite>(m + i, fresh.m);
    M::template store<kWrite>(v + i, Split::marked(fresh.master, fresh.v));
  }
  void store_some(std::size_t i, const Values& fresh, std::size_t n) const {
    M::store_some(halves.low + i, fresh.master, n);
    M::store_some(m + i, fresh.m, n);
    M::store_some(v + i, Split::marked(fresh.master, fresh.v), n);
  }

  static Values joined(F weight, F low, F m, F v) {
    return {Split::join(weight, low, v), m, Split::plain(v)};
  }

  Halves halves;
  float *m, *v;
};

/// The update, for every combination of types.
template <class Arch, Write kWrite>
struct UpdateLoop {
  using S = Simd<Arch>;
  using M = Memory<Arch>;
  using E = Element<Arch>;
  using Values = StateValues<Arch>;

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
      if (a.halves.low != nullptr) {
        const SplitState<Arch> state{a.halves, a.m, a.v};
        run(a, state, gradient, static_cast<Bf16Bits*>(a.published.data));
      } else {
        const WholeState<Arch> state{a.master, a.m, a.v};
        Typed<Arch>::write(a.published,
                           [&](auto* published) { run(a, state, gradient, published); });
      }
    });
  }

  template <class State, class Grad, class Pub>
  static void run(const UpdateArgs& a, const State& state, const Grad& gradient, Pub* published) {
    const AdamStep<Arch> adam(a.factors);
    std::size_t i = 0;
    for (; i + S::kLanes <= a.count; i += S::kLanes) {
      const Values fresh = adam(E::load(gradient, i), state.load(i));
      state.template store<kWrite>(i, fresh);
      M::template store<kWrite>(at(published, i), fresh.master);
    }
    if (const std::size_t n = a.count - i; n != 0) {
      const Values fresh = adam(M::load_some(gradient, i, n), state.load_some(i, n));
      state.store_some(i, fresh, n);
      M::store_some(at(published, i), fresh.master, n);
    }
    // Streamed stores are unordered: whoever is told that the update is done must see them.
    if constexpr (kWrite == Write::kStreaming) S::fence();
  }
};

template <class Arch>
void KernelsFor<Arch>::update(const UpdateArgs& a) noexcept {
  using M = Memory<Arch>;
  const bool on_lines = M::on_line(a.master) && M::on_line(a.halves.low) && M::on_line(a.m) &&
                        M::on_line(a.v) && M::on_line(a.published.data);
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

  static void join(float* master, float* v, Halves in, const float* marked, std::size_t count) {
    using Split = SplitMaster<Arch>;
    std::size_t i = 0;
    for (; i + S::kLanes <= count; i += S::kLanes) {
      const F mark = S::load(marked + i);
      S::store(master + i, Split::join(S::load(in.weights + i), S::load(in.low + i), mark));
      if (v != nullptr) S::store(v + i, Split::plain(mark));
    }
    if (const std::size_t n = count - i; n != 0) {
      const F mark = M::load_some(marked + i, n);
      const F weight = M::load_some(in.weights + i, n), low = M::load_some(in.low + i, n);
      M::store_some(master + i, Split::join(weight, low, mark), n);
      if (v != nullptr) M::store_some(v + i, Split::plain(mark), n);
    }
  }

  static void split(LowBits* low, float* marked, const float* master, const float* v,
                    std::size_t count) {
    using Split = SplitMaster<Arch>;
    std::size_t i = 0;
    for (; i + S::kLanes <= count; i += S::kLanes) {
      const F whole = S::load(master + i);
      S::store(low + i, whole);
      S::store(marked + i, Split::marked(whole, S::load(v + i)));
    }
    if (const std::size_t n = count - i; n != 0) {
      const F whole = M::load_some(master + i, n);
      M::store_some(low + i, whole, n);
      M::store_some(marked + i, Split::marked(whole, M::load_some(v + i, n)), n);
    }
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

template <class Arch>
void KernelsFor<Arch>::join(float* master, float* v, Halves in, const float* marked,
                            std::size_t count) noexcept {
  Loops<Arch>::join(master, v, in, marked, count);
}

template <class Arch>
void KernelsFor<Arch>::split(LowBits* low, float* marked, const float* master, const float* v,
                             std::size_t count) noexcept {
  Loops<Arch>::split(low, marked, master, v, count);
}

}  // namespace sluice::cpu_adam
