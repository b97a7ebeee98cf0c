/// The kernels of rows.h, written once; only rows_*.cpp include this.
#pragma once

#include "engine/model/host/rows.h"
#include "engine/model/host/rows_attention.h"
#include "engine/model/host/rows_elements.h"
#include "engine/model/host/rows_norm.h"
#include "engine/model/host/rows_softmax.h"

namespace sluice::model::rows {

/// Calls f.operator()<bend>().
template <class Arch>
struct Bends {
  template <class F>
  static void run(Bend bend, F f) {
    switch (bend) {
      case Bend::kSilu:
        return f.template operator()<Bend::kSilu>();
      case Bend::kGelu:
        return f.template operator()<Bend::kGelu>();
      case Bend::kGeluTanh:
        return f.template operator()<Bend::kGeluTanh>();
    }
  }
};

template <class Arch>
void KernelsFor<Arch>::norm(Elem elem, const NormArgs& a, Range rows) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() { NormRows<Arch, T>::run(a, rows); });
}

template <class Arch>
void KernelsFor<Arch>::norm_backward(Elem elem, const NormBackwardArgs& a, NormSums sums,
                                     Range rows) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() {
    if (a.dy_type == Elem::kF32) {
      NormRowsBackward<Arch, T, float>::run(a, sums, rows);
    } else {
      NormRowsBackward<Arch, T, T>::run(a, sums, rows);
    }
  });
}

template <class Arch>
void KernelsFor<Arch>::turn(Elem elem, const TurnArgs& a, Range tokens) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() { ElementRows<Arch, T>::turn(a, tokens); });
}

template <class Arch>
void KernelsFor<Arch>::activate(Elem elem, const ActivateArgs& a, Range elements) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() {
    Bends<Arch>::run(
        a.bend, [&]<Bend bend>() { ElementRows<Arch, T>::template activate<bend>(a, elements); });
  });
}

template <class Arch>
void KernelsFor<Arch>::activate_backward(Elem elem, const ActivateBackwardArgs& a,
                                         Range elements) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() {
    Bends<Arch>::run(a.bend, [&]<Bend bend>() {
      ElementRows<Arch, T>::template activate_backward<bend>(a, elements);
    });
  });
}

template <class Arch>
void KernelsFor<Arch>::see(Elem elem, const SoftmaxArgs& a, Range tokens) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() { SoftmaxRows<Arch, T>::see(a, tokens); });
}

template <class Arch>
void KernelsFor<Arch>::softmax_backward(Elem elem, const SoftmaxArgs& a, float scale,
                                        Range tokens) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() { SoftmaxRows<Arch, T>::backward(a, scale, tokens); });
}

template <class Arch>
void KernelsFor<Arch>::look_up(Elem elem, const LookUpArgs& a, Range places) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() { ElementRows<Arch, T>::look_up(a, places); });
}

template <class Arch>
void KernelsFor<Arch>::sum_rows(Elem elem, const void* t, std::int64_t width, float* sum,
                                Range rows) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() {
    ElementRows<Arch, T>::sum_rows(static_cast<const T*>(t), width, sum, rows);
  });
}

template <class Arch>
void KernelsFor<Arch>::sum_places(Elem elem, const void* t, std::int64_t width, Places places,
                                  void* out) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() {
    ElementRows<Arch, T>::sum_places(static_cast<const T*>(t), width, places, static_cast<T*>(out));
  });
}

template <class Arch>
void KernelsFor<Arch>::fold(Elem elem, const float* t, std::int64_t n, std::int64_t width,
                            void* out, Range columns) noexcept {
  Typed<Arch>::run(elem, [&]<class T>() {
    ElementRows<Arch, T>::fold(t, n, width, static_cast<T*>(out), columns);
  });
}

template <class Arch>
void KernelsFor<Arch>::weigh(const ScoresArgs& a, Bf16* pairs, float* max, float* sum) noexcept {
  AttentionRows<Arch>::weigh(a, pairs, max, sum);
}

template <class Arch>
void KernelsFor<Arch>::weigh_backward(const ScoresBackwardArgs& a) noexcept {
  AttentionRows<Arch>::weigh_backward(a);
}

template <class Arch>
void KernelsFor<Arch>::dot_rows(const Bf16* a, std::int64_t a_step, const Bf16* b,
                                std::int64_t b_step, std::int64_t n, std::int64_t width,
                                float* dots) noexcept {
  for (std::int64_t row = 0; row < n; ++row) {
    dots[row] = AttentionRows<Arch>::dot(a + row * a_step, b + row * b_step, width);
  }
}

template <class Arch>
void KernelsFor<Arch>::round_rows(const RoundArgs& a, float by) noexcept {
  AttentionRows<Arch>::round_rows(a, by);
}

template <class Arch>
void KernelsFor<Arch>::round_columns(const RoundArgs& a, const float* by) noexcept {
  AttentionRows<Arch>::round_columns(a, by);
}

}  // namespace sluice::model::rows
