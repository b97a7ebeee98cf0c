/// Layer norm and RMS norm, and the way back: a row at a time.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "engine/model/fused/sums.h"
#include "engine/model/fused/types.h"
#include "engine/model/row_kernels.h"

namespace sluice::model::fused {

template <class T, int kPack>
struct NormRow {
  const T *x, *gain, *bias;  // no bias: an RMS norm
  T* y;
  float *rstd, *mean;
  std::int64_t width;
  float eps;

  template <class Team>
  SLUICE_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const T* from = x + row * width;
    const auto elems = static_cast<float>(width);
    const auto values = [&](std::int64_t i) { return load<kPack>(from + i); };
    const float middle = bias == nullptr ? 0.0F : row_sum<kPack>(team, width, values) / elems;
    const float squares = row_sum<kPack>(team, width, [&](std::int64_t i) {
      Floats<kPack> v = values(i);
      for (float& each : v.at) each = (each - middle) * (each - middle);
      return v;
    });
    const float scale = 1.0F / sqrtf(squares / elems + eps);
    team.each([&](int thread) {
      if (thread == 0) {
        rstd[row] = scale;
        if (bias != nullptr) mean[row] = middle;
      }
      for_packs<kPack>(team, thread, width, [&](std::int64_t i) {
        Floats<kPack> v = values(i);
        const Floats<kPack> g = load<kPack>(gain + i);
        for (int k = 0; k < kPack; ++k) v.at[k] = (v.at[k] - middle) * scale * g.at[k];
        if (bias != nullptr) {
          const Floats<kPack> b = load<kPack>(bias + i);
          for (int k = 0; k < kPack; ++k) v.at[k] += b.at[k];
        }
        store<kPack>(y + row * width + i, v);
      });
    });
  }
};

template <class Launch>
Normed norm_rows(const Launch& launch, const at::Tensor& x_NH, const at::Tensor& gain_H,
                 const at::Tensor& bias_H, double eps) {
  const at::Tensor x = x_NH.contiguous();
  const std::int64_t rows = x.size(0), width = x.size(1);
  const auto fp32 = x.options().dtype(at::kFloat);
  Normed normed{at::empty_like(x), at::empty({rows, 1}, fp32), {}};
  if (bias_H.defined()) normed.mean_N1 = at::empty({rows, 1}, fp32);
  const auto run = [&]<class T, int kPack>() {
    launch_rows(launch, rows, width,
                NormRow<T, kPack>{in<T>(x), in<T>(gain_H), in<T>(bias_H), out<T>(normed.y_NH),
                                  out<float>(normed.rstd_N1), out<float>(normed.mean_N1), width,
                                  static_cast<float>(eps)});
  };
  with_type_and_pack(x.scalar_type(), run, width);
  return normed;
}

/// What a row's backward sees of its forward: xhat = (x - mean) rstd.
template <class T>
struct Seen {
  const T* x;
  const float *rstd, *mean;  // no mean: an RMS norm
  std::int64_t width;

  SLUICE_DEVICE float middle(std::int64_t row) const { return mean == nullptr ? 0.0F : mean[row]; }
  SLUICE_DEVICE float xhat(std::int64_t row, float of) const {
    return (of - middle(row)) * rstd[row];
  }
};

// With g = dy gain, per row: dx = rstd (g - xhat mean(g xhat) [- mean(g), of a layer norm])
template <class T, class G, int kPack>
struct NormRowBackward {
  Seen<T> seen;
  const T* gain;
  const G* dy;
  const T* plus;  // nothing is added where there is none
  T* dx;

  template <class Team>
  SLUICE_DEVICE void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t width = seen.width, begin = row * width;
    const auto elems = static_cast<float>(width);
    const auto xhat = [&](std::int64_t i) {
      Floats<kPack> v = load<kPack>(seen.x + begin + i);
      for (float& each : v.at) each = seen.xhat(row, each);
      return v;
    };
    const auto g = [&](std::int64_t i) {
      Floats<kPack> v = load<kPack>(dy + begin + i);
      const Floats<kPack> by = load<kPack>(gain + i);
      for (int k = 0; k < kPack; ++k) v.at[k] *= by.at[k];
      return v;
    };
    const float along_xhat = row_sum<kPack>(team, width,
                                            [&](std::int64_t i) {
                                              Floats<kPack> v = g(i);
                                              const Floats<kPack> by = xhat(i);
                                              for (int k = 0; k < kPack; ++k) v.at[k] *= by.at[k];
                                              return v;
                                            }) /
                             elems;
    const float middle = seen.mean == nullptr ? 0.0F : row_sum<kPack>(team, width, g) / elems;
    team.each([&](int thread) {
      for_packs<kPack>(team, thread, width, [&](std::int64_t i) {
        Floats<kPack> v = g(i);
        const Floats<kPack> hat = xhat(i);
        for (int k = 0; k < kPack; ++k) {
          v.at[k] = (v.at[k] - middle - hat.at[k] * along_xhat) * seen.rstd[row];
        }
        if (plus != nullptr) {
          const Floats<kPack> more = load<kPack>(plus + begin + i);
          for (int k = 0; k < kPack; ++k) v.at[k] += more.at[k];
        }
        store<kPack>(dx + begin + i, v);
      });
    });
  }
};

template <class T, class G>
struct GainGradient {
  Seen<T> seen;
  const G* dy;
  SLUICE_DEVICE float operator()(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * seen.width + column;
    return static_cast<float>(dy[i]) * seen.xhat(row, static_cast<float>(seen.x[i]));
  }
};

// Sums before dx, which may lie where dy does.
template <class Launch>
void norm_rows_backward(const Launch& launch, const at::Tensor& x_NH, const Normed& normed,
                        const at::Tensor& gain_H, const at::Tensor& dy_NH,
                        const at::Tensor& plus_NH, const NormGradients& to) {
  const at::Tensor x = x_NH.contiguous(), dy = dy_NH.contiguous();
  const std::int64_t rows = x.size(0), width = x.size(1);
  if (normed.mean_N1.defined()) fused::sum_rows(launch, dy, to.out_dbias_H);
  const auto run = [&]<class T, int kPack, class G>() {
    const Seen<T> seen{in<T>(x), in<float>(normed.rstd_N1), in<float>(normed.mean_N1), width};
    sum_columns(launch, rows, GainGradient<T, G>{seen, in<G>(dy)}, to.out_dgain_H);
    launch_rows(launch, rows, width,
                NormRowBackward<T, G, kPack>{seen, in<T>(gain_H), in<G>(dy), in<T>(plus_NH),
                                             out<T>(to.out_dx_NH)});
  };
  const auto with_dy = [&]<class T, int kPack>() {
    if (dy.scalar_type() == at::kFloat) {
      run.template operator()<T, kPack, float>();
    } else {
      run.template operator()<T, kPack, T>();
    }
  };
  with_type_and_pack(x.scalar_type(), with_dy, width);
}

}  // namespace sluice::model::fused
