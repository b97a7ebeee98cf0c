#include "engine/model/mlp.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <utility>

#include "engine/base/error.h"

namespace sluice::model {
namespace {

using shape::Activation;
using shape::Role;

bool gated(const shape::Decoder& d) {
  return d.mlp == shape::Mlp::kGated;
}

Linear make_linear(const shape::Decoder& d, Role weight, Role bias) {
  return {d.linear, weight, d.mlp_bias ? std::optional(bias) : std::nullopt};
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
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
void activate_backward(Activation activation, at::Tensor& dy, const at::Tensor& x) {
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

// The gradients of gate and up (in a plain MLP: of up) from the one of their product.
MlpInputs product_backward(const shape::Decoder& d, MlpInputs&& inputs, at::Tensor dproduct) {
  if (!gated(d)) {
    activate_backward(d.activation, dproduct, inputs.up_NI);
    return {{}, dproduct};
  }
  const at::Tensor dup = activate(d.activation, inputs.gate_NI).mul_(dproduct);
  dproduct.mul_(inputs.up_NI);
  inputs.up_NI.reset();
  activate_backward(d.activation, dproduct, inputs.gate_NI);
  return {dproduct, dup};
}

at::Tensor product(const shape::Decoder& d, const MlpInputs& inputs) {
  if (!gated(d)) return activate(d.activation, inputs.up_NI);
  return activate(d.activation, inputs.gate_NI).mul_(inputs.up_NI);
}

Linear gate(const shape::Decoder& d) {
  return make_linear(d, Role::kGateWeight, Role::kGateBias);
}
Linear up(const shape::Decoder& d) {
  return make_linear(d, Role::kUpWeight, Role::kUpBias);
}

}  // namespace

std::vector<Linear> mlp_inputs(const shape::Decoder& d) {
  if (gated(d)) return {gate(d), up(d)};
  return {up(d)};
}

Linear mlp_output(const shape::Decoder& d) {
  return make_linear(d, Role::kDownWeight, Role::kDownBias);
}

MlpInputs mlp_forward_inputs(const shape::Decoder& d, const ParamSource& params,
                             const at::Tensor& n_NH) {
  MlpInputs inputs;
  if (gated(d)) inputs.gate_NI = forward(gate(d), params, n_NH);
  inputs.up_NI = forward(up(d), params, n_NH);
  return inputs;
}

at::Tensor mlp_forward_output(const shape::Decoder& d, const ParamSource& params,
                              const MlpInputs& inputs) {
  return forward(mlp_output(d), params, product(d, inputs));
}

at::Tensor mlp_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                        const at::Tensor& n_NH, MlpInputs&& inputs, const at::Tensor& dy_NH) {
  at::Tensor dproduct = backward(mlp_output(d), params, grads, product(d, inputs), dy_NH);
  MlpInputs dinputs = product_backward(d, std::move(inputs), std::exchange(dproduct, {}));
  if (!gated(d)) return backward(up(d), params, grads, n_NH, dinputs.up_NI);
  at::Tensor dn = backward(gate(d), params, grads, n_NH, dinputs.gate_NI);
  dinputs.gate_NI.reset();
  return dn.add_(backward(up(d), params, grads, n_NH, dinputs.up_NI));
}

}  // namespace sluice::model
