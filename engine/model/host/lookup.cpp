#include <ATen/ops/index_select.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {
namespace {

// Places of the batch, those with one row side by side, ascending within it.
std::vector<std::int64_t> places_by_row(const std::int64_t* rows, std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [=](std::int64_t a, std::int64_t b) { return rows[a] < rows[b]; });
  return order;
}

template <class T>
void sum_places(const at::Tensor& rows, const at::Tensor& dx_NH, const at::Tensor& out) {
  const std::int64_t hidden = dx_NH.size(1);
  const std::int64_t* row_of = rows.const_data_ptr<std::int64_t>();
  const T* dx = dx_NH.const_data_ptr<T>();
  T* into = out.mutable_data_ptr<T>();
  const std::vector<std::int64_t> order = places_by_row(row_of, rows.numel());
  std::vector<float> sum(static_cast<std::size_t>(hidden));
  for (std::size_t i = 0; i < order.size();) {
    const std::int64_t row = row_of[order[i]];
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (; i < order.size() && row_of[order[i]] == row; ++i) {
      const T* from = dx + order[i] * hidden;
      for (std::int64_t h = 0; h < hidden; ++h) {
        sum[static_cast<std::size_t>(h)] += static_cast<float>(from[h]);
      }
    }
    std::transform(sum.begin(), sum.end(), into + row * hidden,
                   [](float value) { return static_cast<T>(value); });
  }
}

}  // namespace

void look_up(const Lookup& first, const Lookup& second, const at::Tensor& out_NH) {
  at::Tensor out = out_NH;
  at::index_select_out(out, first.table_VH, 0, first.ids_N);
  if (second.table_VH.defined()) out.add_(at::index_select(second.table_VH, 0, second.ids_N));
}

void look_up_backward(const at::Tensor& ids_N, const at::Tensor& dx_NH, const at::Tensor& out_VH) {
  out_VH.zero_();
  switch (dx_NH.scalar_type()) {
    case at::kFloat:
      return sum_places<float>(ids_N, dx_NH, out_VH);
    case at::kBFloat16:
      return sum_places<at::BFloat16>(ids_N, dx_NH, out_VH);
    case at::kHalf:
      return sum_places<at::Half>(ids_N, dx_NH, out_VH);
    default:
      throw Error(Errc::kLogic, "an embedding's gradient of no dtype");
  }
}

}  // namespace sluice::model
