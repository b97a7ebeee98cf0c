#include "engine/model/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "engine/model/rows.h"

namespace sluice::model {
namespace {

at::Tensor weight_IO(const Linear& linear, const ParamSource& params) {
  const at::Tensor w = params.weight(linear.weight);
  return linear.layout == shape::LinearLayout::kOutIn ? w.t() : w;
}

at::Tensor sum_of_rows_fp32(const at::Tensor& t_NO) {
  at::Tensor sum = at::zeros({t_NO.size(1)}, t_NO.options().dtype(at::kFloat));
  for_row_blocks(t_NO, [&](RowBlock block) { sum.add_(block.in_fp32(t_NO).sum(0)); });
  return sum;
}

}  // namespace

at::Tensor forward(const Linear& linear, const ParamSource& params, const at::Tensor& x_NI) {
  const at::Tensor w = weight_IO(linear, params);
  return linear.bias ? at::addmm(params.weight(*linear.bias), x_NI, w) : at::mm(x_NI, w);
}

at::Tensor backward(const Linear& linear, const ParamSource& params, GradSink& grads,
                    const at::Tensor& x_NI, const at::Tensor& dy_NO) {
  at::Tensor dw = grads.gradient(linear.weight);
  if (linear.layout == shape::LinearLayout::kOutIn) {
    at::mm_out(dw, dy_NO.t(), x_NI);
  } else {
    at::mm_out(dw, x_NI.t(), dy_NO);
  }
  if (linear.bias) grads.gradient(*linear.bias).copy_(sum_of_rows_fp32(dy_NO));
  return at::mm(dy_NO, weight_IO(linear, params).t());
}

}  // namespace sluice::model
