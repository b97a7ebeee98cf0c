#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/blocks.h"

namespace sluice::model {
namespace {

using shape::Role;

// The positions of every token side by side, ascending within a token.
std::vector<std::int64_t> positions_by_token(const std::int64_t* tokens, std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [=](std::int64_t a, std::int64_t b) { return tokens[a] < tokens[b]; });
  return order;
}

template <class T>
void sum_rows(const at::Tensor& tokens, const at::Tensor& dx_NH, const at::Tensor& out_VH) {
  const std::int64_t hidden = dx_NH.size(1);
  const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
  const T* dx = dx_NH.const_data_ptr<T>();
  T* out = out_VH.mutable_data_ptr<T>();
  const std::vector<std::int64_t> order = positions_by_token(token, tokens.numel());
  std::vector<float> sum(static_cast<std::size_t>(hidden));
  for (std::size_t i = 0; i < order.size();) {
    const std::int64_t row = token[order[i]];
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (; i < order.size() && token[order[i]] == row; ++i) {
      const T* from = dx + order[i] * hidden;
      for (std::int64_t h = 0; h < hidden; ++h) {
        sum[static_cast<std::size_t>(h)] += static_cast<float>(from[h]);
      }
    }
    std::transform(sum.begin(), sum.end(), out + row * hidden,
                   [](float value) { return static_cast<T>(value); });
  }
}

void position_gradient(const at::Tensor& dx_BSH, const at::Tensor& out_PH) {
  const std::int64_t seq = dx_BSH.size(1);
  at::Tensor sum = at::zeros({seq, dx_BSH.size(2)}, dx_BSH.options().dtype(at::kFloat));
  for (std::int64_t b = 0; b < dx_BSH.size(0); ++b) sum.add_(dx_BSH.select(0, b));
  out_PH.narrow(0, 0, seq).copy_(sum);
  out_PH.narrow(0, seq, out_PH.size(0) - seq).zero_();
}

}  // namespace

void embed_forward(const shape::Decoder& d, const ParamSource& params, const at::Tensor& tokens_BS,
                   at::Tensor out_x_BSH) {
  const c10::NoGradGuard no_graph;
  at::Tensor out_NH = out_x_BSH.view({-1, d.hidden});
  at::index_select_out(out_NH, params.weight(Role::kTokenEmbedding), 0, tokens_BS.view({-1}));
  if (d.positions == shape::Positions::kLearned) {
    out_x_BSH.add_(params.weight(Role::kPositionEmbedding).narrow(0, 0, tokens_BS.size(1)));
  }
}

void embed_backward(const shape::Decoder& d, const at::Tensor& tokens_BS, const at::Tensor& dx_BSH,
                    GradSink& grads) {
  const c10::NoGradGuard no_graph;
  SLUICE_CHECK(dx_BSH.is_cpu(), kLogic, "embed_backward: its tensors must be in host memory");
  const at::Tensor out = grads.gradient(Role::kTokenEmbedding);
  out.zero_();
  const at::Tensor dx_NH = dx_BSH.view({-1, d.hidden});
  if (dx_BSH.scalar_type() == at::kFloat) {
    sum_rows<float>(tokens_BS, dx_NH, out);
  } else {
    sum_rows<at::BFloat16>(tokens_BS, dx_NH, out);
  }
  if (d.positions == shape::Positions::kLearned) {
    position_gradient(dx_BSH, grads.gradient(Role::kPositionEmbedding));
  }
}

}  // namespace sluice::model
