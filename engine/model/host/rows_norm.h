/// Norms and their way back, a row at a time; only rows_body.h includes this.
#pragma once

#include "engine/model/host/lanes.h"

namespace sluice::model::rows {

template <class Arch, class T>
struct NormRows {
  using L = Lanes<Arch>;
  using R = Row<Arch>;

  static void run(const NormArgs& a, Range rows) {
    const auto* gain = static_cast<const T*>(a.gain);
    const auto* bias = static_cast<const T*>(a.bias);
    const auto elems = static_cast<float>(a.width);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const T* x = static_cast<const T*>(a.x) + row * a.width;
      T* y = static_cast<T*>(a.y) + row * a.width;
      float mean = 0;
      if (bias != nullptr) {
        mean = R::sum(a.width, [&](auto i, auto n) { return L::load(x + i, n); }) / elems;
        a.mean[row] = mean;
      }
      const L middle = L::all(mean);
      const float squares = R::sum(a.width, [&](auto i, auto n) {
        const L v = L::load(x + i, n) - middle;
        return v * v;
      });
      const float rstd = 1.0F / __builtin_sqrtf(squares / elems + a.eps);
      a.rstd[row] = rstd;
      const L scale = L::all(rstd);
      R::over(a.width, [&](auto i, auto n) {
        L v = (L::load(x + i, n) - middle) * scale * L::load(gain + i, n);
        if (bias != nullptr) v = v + L::load(bias + i, n);
        v.store(y + i, n);
      });
    }
  }
};

// With xhat = (x - mean) rstd and g = dy gain, per row:
//   dx = rstd (g - xhat mean(g xhat) [- mean(g), of a layer norm])
template <class Arch, class T, class G>
struct NormRowsBackward {
  using L = Lanes<Arch>;
  using R = Row<Arch>;

  static void run(const NormBackwardArgs& a, NormSums sums, Range rows) {
    clear(sums.dgain, a.width);
    if (sums.dbias != nullptr) clear(sums.dbias, a.width);
    const auto* gain = static_cast<const T*>(a.gain);
    const auto elems = static_cast<float>(a.width);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const T* x = static_cast<const T*>(a.x) + row * a.width;
      const G* dy = static_cast<const G*>(a.dy) + row * a.width;
      const L mean = L::all(a.mean == nullptr ? 0.0F : a.mean[row]), rstd = L::all(a.rstd[row]);
      const auto xhat = [&](auto i, auto n) { return (L::load(x + i, n) - mean) * rstd; };
      const auto g = [&](auto i, auto n) { return L::load(dy + i, n) * L::load(gain + i, n); };
      const L along_xhat =
          L::all(R::sum(a.width, [&](auto i, auto n) { return g(i, n) * xhat(i, n); }) / elems);
      const L middle = L::all(a.mean == nullptr ? 0.0F : R::sum(a.width, g) / elems);
      R::over(a.width, [&](auto i, auto n) {
        const L hat = xhat(i, n), by = L::load(dy + i, n);
        const L dx = (by * L::load(gain + i, n) - middle - hat * along_xhat) * rstd;
        add(sums.dgain + i, by * hat, n);
        if (sums.dbias != nullptr) add(sums.dbias + i, by, n);
        write(a, row * a.width + i, dx, n);
      });
    }
  }

 private:
  static void clear(float* sum, std::int64_t width) {
    R::over(width, [&](auto i, auto n) { L::all(0.0F).store(sum + i, n); });
  }
  template <class N>
  SLUICE_LANES_INLINE static void add(float* sum, const L& more, N n) {
    (L::load(sum, n) + more).store(sum, n);
  }
  template <class N>
  SLUICE_LANES_INLINE static void write(const NormBackwardArgs& a, std::int64_t i, L dx, N n) {
    if (a.plus != nullptr) dx = dx + L::load(static_cast<const T*>(a.plus) + i, n);
    dx.store(static_cast<T*>(a.dx) + i, n);
  }
};

}  // namespace sluice::model::rows
