#include <ATen/ops/index_select.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/blocks.h"

namespace sluice::model {
namespace {

using shape::Role;

// Places of the batch, those with one row side by side, ascending within it.
std::vector<std::int64_t> places_by_row(const std::int64_t* rows, std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [=](std::int64_t a, std::int64_t b) { return rows[a] < rows[b]; });
  return order;
}

template <class T>
void sum_rows(const at::Tensor& rows, const at::Tensor& dx_NH, const at::Tensor& out) {
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

/// Each row of the table gets the sum over the places that took it.
void table_gradient(const at::Tensor& rows_BS, const at::Tensor& dx_NH, const at::Tensor& out) {
  out.zero_();
  if (dx_NH.scalar_type() == at::kFloat) {
    sum_rows<float>(rows_BS, dx_NH, out);
  } else {
    sum_rows<at::BFloat16>(rows_BS, dx_NH, out);
  }
}

}  // namespace

void embed_forward(const shape::Decoder& d, const ParamSource& params, const at::Tensor& tokens_BS,
                   const at::Tensor& positions_BS, at::Tensor out_x_BSH) {
  const c10::NoGradGuard no_graph;
  at::Tensor out_NH = out_x_BSH.view({-1, d.hidden});
  at::index_select_out(out_NH, params.weight(Role::kTokenEmbedding), 0, tokens_BS.view({-1}));
  if (d.positions == shape::Positions::kLearned) {
    out_NH.add_(
        at::index_select(params.weight(Role::kPositionEmbedding), 0, positions_BS.view({-1})));
  }
}

void embed_backward(const shape::Decoder& d, const at::Tensor& tokens_BS,
                    const at::Tensor& positions_BS, const at::Tensor& dx_BSH, GradSink& grads) {
  const c10::NoGradGuard no_graph;
  SLUICE_CHECK(dx_BSH.is_cpu(), kLogic, "embed_backward: its tensors must be in host memory");
  const at::Tensor dx_NH = dx_BSH.view({-1, d.hidden});
  table_gradient(tokens_BS, dx_NH, grads.gradient(Role::kTokenEmbedding));
  if (d.positions == shape::Positions::kLearned) {
    table_gradient(positions_BS, dx_NH, grads.gradient(Role::kPositionEmbedding));
  }
}

}  // namespace sluice::model
