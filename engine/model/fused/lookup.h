/// Rows of tables, and the gradients of tables: sums in ascending order of places, without atomics.
#pragma once

#include <ATen/ops/sort.h>

#include <optional>
#include <tuple>

#include "engine/model/fused/types.h"
#include "engine/model/row_kernels.h"

namespace sluice::model::fused {

template <class T, int kPack>
struct LookUp {
  const T *first, *second;  // no second: nothing is added
  const std::int64_t *first_id, *second_id;
  T* out;
  std::int64_t width;

  SLUICE_DEVICE void operator()(std::int64_t pack) const {
    const std::int64_t i = pack * kPack, place = i / width, column = i % width;
    Floats<kPack> x = load<kPack>(first + first_id[place] * width + column);
    if (second != nullptr) {
      const Floats<kPack> y = load<kPack>(second + second_id[place] * width + column);
      for (int k = 0; k < kPack; ++k) x.at[k] += y.at[k];
    }
    store<kPack>(out + i, x);
  }
};

template <class Launch>
void look_up(const Launch& launch, const Lookup& first, const Lookup& second,
             const at::Tensor& out_NH) {
  const std::int64_t width = out_NH.size(1);
  const auto run = [&]<class T, int kPack>() {
    launch.each(out_NH.numel() / kPack,
                LookUp<T, kPack>{in<T>(first.table_VH), in<T>(second.table_VH),
                                 in<std::int64_t>(first.ids_N), in<std::int64_t>(second.ids_N),
                                 out<T>(out_NH), width});
  };
  with_type_and_pack(out_NH.scalar_type(), run, width);
}

/// Places in the order of their ids. Each is asked; the first of a run of one id sums the run.
template <class T, int kPack>
struct SumRun {
  const std::int64_t *id, *place;
  const T* dx;
  T* out;
  std::int64_t places, width;

  SLUICE_DEVICE void operator()(std::int64_t pack) const {
    const std::int64_t begin = pack * kPack / width, column = pack * kPack % width;
    const std::int64_t row = id[begin];
    if (begin > 0 && id[begin - 1] == row) return;
    Floats<kPack> sum = {};
    for (std::int64_t i = begin; i < places && id[i] == row; ++i) {
      const Floats<kPack> x = load<kPack>(dx + place[i] * width + column);
      for (int k = 0; k < kPack; ++k) sum.at[k] += x.at[k];
    }
    store<kPack>(out + row * width + column, sum);
  }
};

template <class Launch>
void look_up_backward(const Launch& launch, const at::Tensor& ids_N, const at::Tensor& dx_NH,
                      const at::Tensor& out_VH) {
  const at::Tensor dx = dx_NH.contiguous();
  const std::int64_t places = dx.size(0), width = dx.size(1);
  const auto [ids, order] = at::sort(ids_N, std::optional(/*stable*/ true), /*dim=*/0);
  const std::int64_t* id = in<std::int64_t>(ids);
  const std::int64_t* place = in<std::int64_t>(order);
  out_VH.zero_();
  const auto run = [&]<class T, int kPack>() {
    launch.each(dx.numel() / kPack,
                SumRun<T, kPack>{id, place, in<T>(dx), out<T>(out_VH), places, width});
  };
  with_type_and_pack(dx.scalar_type(), run, width);
}

}  // namespace sluice::model::fused
