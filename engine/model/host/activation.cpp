#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "engine/base/error.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {
namespace {

using shape::Activation;

at::Tensor activated(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kGelu:
      return at::gelu(x, "none");
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
  }
  throw Error(Errc::kLogic, "an activation of no kind");
}

// In place: `dy` becomes the gradient of `x`.
void activated_backward(Activation activation, at::Tensor& dy, const at::Tensor& x) {
  switch (activation) {
    case Activation::kSilu:
      at::silu_backward_out(dy, dy, x);
      return;
    case Activation::kGelu:
      at::gelu_backward_out(dy, dy, x, "none");
      return;
    case Activation::kGeluTanh:
      at::gelu_backward_out(dy, dy, x, "tanh");
      return;
  }
}

}  // namespace

at::Tensor activate(Activation activation, const MlpInputs& inputs) {
  if (!inputs.gate_NI.defined()) return activated(activation, inputs.up_NI);
  return activated(activation, inputs.gate_NI).mul_(inputs.up_NI);
}

MlpInputs activate_backward(Activation activation, MlpInputs&& inputs, at::Tensor dproduct) {
  if (!inputs.gate_NI.defined()) {
    activated_backward(activation, dproduct, inputs.up_NI);
    return {{}, dproduct};
  }
  const at::Tensor dup = activated(activation, inputs.gate_NI).mul_(dproduct);
  dproduct.mul_(inputs.up_NI);
  inputs.up_NI.reset();
  activated_backward(activation, dproduct, inputs.gate_NI);
  return {dproduct, dup};
}

}  // namespace sluice::model
