#include "engine/model/mlp.h"

#include <ATen/ops/empty_like.h>

#include <utility>

#include "engine/model/gradient_sums.h"
#include "engine/model/pieces.h"

namespace sluice::model {
namespace {

using shape::Role;

bool gated(const shape::Decoder& d) {
  return d.mlp == shape::Mlp::kGated;
}

Linear mlp_linear(const shape::Decoder& d, Role weight, Role bias) {
  return {d.linear, weight, d.mlp_bias ? std::optional(bias) : std::nullopt};
}

Linear gate(const shape::Decoder& d) {
  return mlp_linear(d, Role::kGateWeight, Role::kGateBias);
}
Linear up(const shape::Decoder& d) {
  return mlp_linear(d, Role::kUpWeight, Role::kUpBias);
}

bool is_there(const MlpInputs& inputs) {
  return inputs.up_NI.defined();
}

/// The rows of some tokens, of what there is.
MlpInputs rows_of(Piece tokens, const MlpInputs& inputs) {
  const auto rows = [&](const at::Tensor& t) { return t.defined() ? tokens.of(t) : t; };
  return {rows(inputs.gate_NI), rows(inputs.up_NI)};
}

MlpInputs forward_inputs(const shape::Decoder& d, const ParamSource& params,
                         const at::Tensor& n_NH) {
  MlpInputs inputs;
  if (gated(d)) inputs.gate_NI = forward(gate(d), params, n_NH);
  inputs.up_NI = forward(up(d), params, n_NH);
  return inputs;
}

void forward_inputs_to(const shape::Decoder& d, const ParamSource& params, const at::Tensor& n_NH,
                       const MlpInputs& to) {
  if (gated(d)) forward_to(gate(d), params, n_NH, to.gate_NI);
  forward_to(up(d), params, n_NH, to.up_NI);
}

at::Tensor backward_at_once(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
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

}  // namespace

std::vector<Linear> mlp_inputs(const shape::Decoder& d) {
  if (gated(d)) return {gate(d), up(d)};
  return {up(d)};
}

Linear mlp_output(const shape::Decoder& d) {
  return mlp_linear(d, Role::kDownWeight, Role::kDownBias);
}

void mlp_forward(const shape::Decoder& d, const ParamSource& params, const at::Tensor& n_NH,
                 const at::Tensor& mid_NH, std::int64_t chunk, const MlpInputs& keep,
                 const at::Tensor& out_NH) {
  for_pieces(n_NH.size(0), chunk, [&](Piece some) {
    MlpInputs inputs = rows_of(some, keep);
    if (is_there(keep)) {
      forward_inputs_to(d, params, some.of(n_NH), inputs);
    } else {
      inputs = forward_inputs(d, params, some.of(n_NH));
    }
    const at::Tensor out = some.of(out_NH);
    forward_to(mlp_output(d), params, activate(d.activation, inputs), out);
    out.add_(some.of(mid_NH));
  });
}

at::Tensor mlp_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                        const at::Tensor& n_NH, MlpInputs&& kept, std::int64_t chunk,
                        const at::Tensor& dy_NH) {
  if (chunk >= n_NH.size(0)) {
    MlpInputs all = is_there(kept) ? std::move(kept) : forward_inputs(d, params, n_NH);
    return backward_at_once(d, params, grads, n_NH, std::move(all), dy_NH);
  }
  const at::Tensor dn_NH = at::empty_like(n_NH);
  GradientSums sums(grads);
  for_pieces(n_NH.size(0), chunk, [&](Piece some) {
    const at::Tensor n = some.of(n_NH);
    MlpInputs inputs = is_there(kept) ? rows_of(some, kept) : forward_inputs(d, params, n);
    some.of(dn_NH).copy_(backward_at_once(d, params, sums, n, std::move(inputs), some.of(dy_NH)));
  });
  sums.write();
  return dn_NH;
}

}  // namespace sluice::model
