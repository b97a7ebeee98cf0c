#include "engine/model/linear.h"

#include <utility>

#include "engine/model/products.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {
namespace {

at::Tensor weight_IO(const Linear& linear, const ParamSource& params) {
  const at::Tensor w = params.weight(linear.weight);
  return linear.layout == shape::LinearLayout::kOutIn ? w.t() : w;
}

at::Tensor bias_O(const Linear& linear, const ParamSource& params) {
  return linear.bias ? params.weight(*linear.bias) : at::Tensor();
}

}  // namespace

at::Tensor forward(const Linear& linear, const ParamSource& params, const at::Tensor& x_NI) {
  return product(x_NI, weight_IO(linear, params), bias_O(linear, params));
}

void forward_to(const Linear& linear, const ParamSource& params, const at::Tensor& x_NI,
                at::Tensor out_NO) {
  product_to(std::move(out_NO), x_NI, weight_IO(linear, params), bias_O(linear, params));
}

at::Tensor backward(const Linear& linear, const ParamSource& params, GradSink& grads,
                    const at::Tensor& x_NI, const at::Tensor& dy_NO) {
  const at::Tensor dw = grads.gradient(linear.weight);
  if (linear.layout == shape::LinearLayout::kOutIn) {
    product_to(dw, dy_NO.t(), x_NI);
  } else {
    product_to(dw, x_NI.t(), dy_NO);
  }
  if (linear.bias) sum_rows(dy_NO, grads.gradient(*linear.bias));
  return product(dy_NO, weight_IO(linear, params).t());
}

}  // namespace sluice::model
