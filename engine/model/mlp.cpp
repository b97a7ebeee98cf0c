#include "engine/model/mlp.h"

#include <utility>

namespace sluice::model {
namespace {

using shape::Role;

bool gated(const shape::Decoder& d) {
  return d.mlp == shape::Mlp::kGated;
}

Linear make_linear(const shape::Decoder& d, Role weight, Role bias) {
  return {d.linear, weight, d.mlp_bias ? std::optional(bias) : std::nullopt};
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
  return forward(mlp_output(d), params, activate(d.activation, inputs));
}

at::Tensor mlp_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                        const at::Tensor& n_NH, MlpInputs&& inputs, const at::Tensor& dy_NH) {
  at::Tensor dproduct =
      backward(mlp_output(d), params, grads, activate(d.activation, inputs), dy_NH);
  MlpInputs dinputs =
      activate_backward(d.activation, std::move(inputs), std::exchange(dproduct, {}));
  if (!gated(d)) return backward(up(d), params, grads, n_NH, dinputs.up_NI);
  at::Tensor dn = backward(gate(d), params, grads, n_NH, dinputs.gate_NI);
  dinputs.gate_NI.reset();
  return dn.add_(backward(up(d), params, grads, n_NH, dinputs.up_NI));
}

}  // namespace sluice::model
