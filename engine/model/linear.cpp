#include "engine/model/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "engine/model/row_kernels.h"

namespace sluice::model {
namespace {

at::Tensor weight_IO(const Linear& linear, const ParamSource& params) {
  const at::Tensor w = params.weight(linear.weight);
  return linear.layout == shape::LinearLayout::kOutIn ? w.t() : w;
}

}  // namespace

at::Tensor forward(const Linear& linear, const ParamSource& params, const at::Tensor& x_NI) {
  const at::Tensor w = weight_IO(linear, params);
  return linear.bias ? at::addmm(params.weight(*linear.bias), x_NI, w) : at::mm(x_NI, w);
}

void forward_to(const Linear& linear, const ParamSource& params, const at::Tensor& x_NI,
                at::Tensor out_NO) {
  const at::Tensor w = weight_IO(linear, params);
  if (linear.bias) {
    at::addmm_out(out_NO, params.weight(*linear.bias), x_NI, w);
  } else {
    at::mm_out(out_NO, x_NI, w);
  }
}

at::Tensor backward(const Linear& linear, const ParamSource& params, GradSink& grads,
                    const at::Tensor& x_NI, const at::Tensor& dy_NO) {
  at::Tensor dw = grads.gradient(linear.weight);
  if (linear.layout == shape::LinearLayout::kOutIn) {
    at::mm_out(dw, dy_NO.t(), x_NI);
  } else {
    at::mm_out(dw, x_NI.t(), dy_NO);
  }
  if (linear.bias) sum_rows(dy_NO, grads.gradient(*linear.bias));
  return at::mm(dy_NO, weight_IO(linear, params).t());
}

}  // namespace sluice::model
