/// What each thread of a device's kernels does, as a function of its number and nothing else.
///
/// gpu/cuda runs them on a device; a test runs the same functions on the host, thread by thread,
/// and compares the bits with the optimizer's. Operands have any natural alignment; on 16 bytes (8
/// for types of two bytes) they move four elements at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_adam/element.h"
#include "cpu_adam/kernel.h"
#include "engine/base/device_code.h"

namespace sluice::gpu::kernels {

using One = cpu_adam::Simd<cpu_adam::Scalar>;
using Element = cpu_adam::Element<cpu_adam::Scalar>;
using Lanes = cpu_adam::NormLanes<cpu_adam::Scalar>;

/// Thread t has the elements 4 t to 4 t + 3 of an element-wise kernel.
inline constexpr std::size_t kEach = 4;

/// The elements of one thread; `count` of them are there.
struct Part {
  std::size_t first;
  std::size_t count;

  SLUICE_DEVICE static Part of(std::size_t thread, std::size_t all) {
    const std::size_t first = thread * kEach;
    const std::size_t left = first < all ? all - first : 0;
    return {first, left < kEach ? left : kEach};
  }
};

struct Four {
  float at[kEach];
};

/// An array that is read and written in parts.
template <class T>
struct Array {
  struct alignas(kEach * sizeof(T)) Packed {
    T at[kEach];
  };

  SLUICE_DEVICE bool in_one(const Part& part) const {
    return part.count == kEach && reinterpret_cast<std::uintptr_t>(data) % sizeof(Packed) == 0;
  }
  SLUICE_DEVICE Four load(const Part& part) const {
    Four x{};
    if (in_one(part)) {
      const Packed packed = *reinterpret_cast<const Packed*>(data + part.first);
      for (std::size_t k = 0; k < kEach; ++k) x.at[k] = One::load(packed.at + k);
    } else {
      for (std::size_t k = 0; k < kEach; ++k) {
        if (k < part.count) x.at[k] = One::load(data + part.first + k);
      }
    }
    return x;
  }
  SLUICE_DEVICE void store(const Part& part, const Four& x) const {
    if (in_one(part)) {
      Packed packed;
      for (std::size_t k = 0; k < kEach; ++k) One::store(packed.at + k, x.at[k]);
      *reinterpret_cast<Packed*>(data + part.first) = packed;
    } else {
      for (std::size_t k = 0; k < kEach; ++k) {
        if (k < part.count) One::store(data + part.first + k, x.at[k]);
      }
    }
  }

  T* data;
};

template <>
struct Array<cpu_adam::Nowhere> {
  SLUICE_DEVICE void store(const Part&, const Four&) const {}
  cpu_adam::Nowhere* data;
};

/// Two whose sums are read.
template <class A, class B>
struct Sums {
  SLUICE_DEVICE Four load(const Part& part) const {
    Four sum = a.load(part);
    const Four more = b.load(part);
    for (std::size_t k = 0; k < kEach; ++k) sum.at[k] += more.at[k];
    return sum;
  }

  Array<const A> a;
  Array<const B> b;
};

/// Optimizer::update. Grad: an Array, or Sums.
template <class Grad, class Pub>
struct Update {
  SLUICE_DEVICE void operator()(std::size_t thread) const {
    const Part part = Part::of(thread, count);
    const Four g = gradient.load(part);
    Four new_master = master.load(part);
    Four new_m = m.load(part);
    Four new_v = v.load(part);
    for (std::size_t k = 0; k < kEach; ++k) {
      const auto fresh = adam(g.at[k], {new_master.at[k], new_m.at[k], new_v.at[k]});
      new_master.at[k] = fresh.master;
      new_m.at[k] = fresh.m;
      new_v.at[k] = fresh.v;
    }
    master.store(part, new_master);
    m.store(part, new_m);
    v.store(part, new_v);
    published.store(part, new_master);
  }

  Array<float> master, m, v;
  Grad gradient;
  Array<Pub> published;
  cpu_adam::AdamStep<cpu_adam::Scalar> adam;
  std::size_t count;
};

/// Optimizer::assign, and of Sums add.
template <class In>
struct Assign {
  SLUICE_DEVICE void operator()(std::size_t thread) const {
    const Part part = Part::of(thread, count);
    out.store(part, in.load(part));
  }

  Array<float> out;
  In in;
  std::size_t count;
};

/// Optimizer::grain_norms: Lanes::kCount threads to a grain, in two steps. In: a pointer, or Two.
template <class In>
struct GrainNorms {
  /// The first: what this thread's lane of its grain comes to.
  SLUICE_DEVICE double lane(std::size_t thread) const {
    const std::size_t begin = thread / Lanes::kCount * grain;
    const std::size_t end = begin + grain < count ? begin + grain : count;
    constexpr std::size_t kAhead = 8;  // loads under way at once
    double sum = 0;
    std::size_t i = begin + thread % Lanes::kCount;
    for (; i + (kAhead - 1) * Lanes::kCount < end; i += kAhead * Lanes::kCount) {
      float x[kAhead];
      for (std::size_t k = 0; k < kAhead; ++k) x[k] = Element::load(in, i + k * Lanes::kCount);
      for (const float value : x) One::add_squares(&sum, value);
    }
    for (; i < end; i += Lanes::kCount) One::add_squares(&sum, Element::load(in, i));
    return sum;
  }
  /// The second, when all lanes of the grain are in `lanes`: its first thread adds them up.
  SLUICE_DEVICE void fold(std::size_t thread, double* lanes) const {
    const std::size_t number = thread / Lanes::kCount;
    if (thread % Lanes::kCount == 0 && number * grain < count)
      partials[number] = Lanes::fold(lanes);
  }

  In in;
  std::size_t count;
  std::size_t grain;  // elements
  double* partials;
};

}  // namespace sluice::gpu::kernels
