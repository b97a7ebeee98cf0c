/// What is done element by element, and sums down columns; only rows_body.h includes this.
#pragma once

#include "engine/model/host/elementary.h"

namespace sluice::model::rows {

template <class Arch, class T>
struct ElementRows {
  using L = Lanes<Arch>;
  using R = Row<Arch>;
  using E = Elementary<Arch>;

  static void turn(const TurnArgs& a, Range tokens) {
    const L sign = L::all(a.sign);
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      const float *cosine = a.cosine + token * a.pairs, *sine = a.sine + token * a.pairs;
      for (std::int64_t head = 0; head < a.heads; ++head) {
        const T* first = static_cast<const T*>(a.x) + token * a.step + head * 2 * a.pairs;
        T* to = static_cast<T*>(a.turned) + (token * a.heads + head) * 2 * a.pairs;
        R::over(a.pairs, [&](auto i, auto n) {
          const L x = L::load(first + i, n), y = L::load(first + a.pairs + i, n);
          const L c = L::load(cosine + i, n), s = L::load(sine + i, n);
          (x * c - sign * (y * s)).store(to + i, n);
          (y * c + sign * (x * s)).store(to + a.pairs + i, n);
        });
      }
    }
  }

  template <Bend bend>
  [[gnu::flatten]] static void activate(const ActivateArgs& a, Range elements) {
    const auto* gate = static_cast<const T*>(a.gate);
    const T* up = static_cast<const T*>(a.up) + elements.begin;
    T* product = static_cast<T*>(a.product) + elements.begin;
    if (gate != nullptr) gate += elements.begin;
    R::over(elements.end - elements.begin, [&](auto i, auto n) {
      const L u = L::load(up + i, n);
      if (gate == nullptr) {
        E::bend(bend, u).value.store(product + i, n);
      } else {
        (E::bend(bend, L::load(gate + i, n)).value * u).store(product + i, n);
      }
    });
  }

  template <Bend bend>
  [[gnu::flatten]] static void activate_backward(const ActivateBackwardArgs& a, Range elements) {
    const auto* gate = static_cast<const T*>(a.gate);
    const auto* up = static_cast<const T*>(a.up);
    auto *dproduct = static_cast<T*>(a.dproduct), *dup = static_cast<T*>(a.dup);
    R::over(elements.end - elements.begin, [&](auto at, auto n) {
      const std::int64_t i = elements.begin + at;
      const L u = L::load(up + i, n), d = L::load(dproduct + i, n);
      if (gate == nullptr) {
        (d * E::bend(bend, u).slope).store(dproduct + i, n);
        return;
      }
      const auto bent = E::bend(bend, L::load(gate + i, n));
      (d * bent.value).store(dup + i, n);
      (d * (u * bent.slope)).store(dproduct + i, n);
    });
  }

  static void look_up(const LookUpArgs& a, Range places) {
    for (std::int64_t place = places.begin; place < places.end; ++place) {
      const T* first = static_cast<const T*>(a.first) + a.first_id[place] * a.width;
      T* out = static_cast<T*>(a.out) + place * a.width;
      if (a.second == nullptr) {
        __builtin_memcpy(out, first, static_cast<std::uint64_t>(a.width) * sizeof(T));
        continue;
      }
      const T* second = static_cast<const T*>(a.second) + a.second_id[place] * a.width;
      R::over(a.width, [&](auto i, auto n) {
        (L::load(first + i, n) + L::load(second + i, n)).store(out + i, n);
      });
    }
  }

  static void sum_rows(const T* t, std::int64_t width, float* sum, Range rows) {
    R::over(width, [&](auto i, auto n) { L::all(0.0F).store(sum + i, n); });
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      R::over(width, [&](auto i, auto n) {
        (L::load(sum + i, n) + L::load(t + row * width + i, n)).store(sum + i, n);
      });
    }
  }

  static void sum_places(const T* t, std::int64_t width, Places places, T* out) {
    R::over(width, [&](auto i, auto n) {
      L sum = L::all(0.0F);
      for (std::int64_t k = 0; k < places.n; ++k) {
        sum = sum + L::load(t + places.row[k] * width + i, n);
      }
      sum.store(out + i, n);
    });
  }

  static void fold(const float* t, std::int64_t rows, std::int64_t width, T* out, Range columns) {
    R::over(columns.end - columns.begin, [&](auto at, auto n) {
      const std::int64_t i = columns.begin + at;
      L sum = L::load(t + i, n);
      for (std::int64_t row = 1; row < rows; ++row) sum = sum + L::load(t + row * width + i, n);
      sum.store(out + i, n);
    });
  }
};

}  // namespace sluice::model::rows
