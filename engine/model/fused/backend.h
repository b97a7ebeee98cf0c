/// The functions of row_kernels.h and softmax.h, on the `Launch` of whoever includes this, once,
/// after naming it sluice::model::Launch.
#include <ATen/ops/full.h>

#include <limits>
#include <utility>

#include "engine/model/fused/activation.h"
#include "engine/model/fused/lookup.h"
#include "engine/model/fused/norm.h"
#include "engine/model/fused/rotary.h"
#include "engine/model/fused/softmax.h"
#include "engine/model/fused/sums.h"

namespace sluice::model {

Normed norm_rows(const at::Tensor& x_NH, const at::Tensor& gain_H, const at::Tensor& bias_H,
                 double eps) {
  return fused::norm_rows(Launch(), x_NH, gain_H, bias_H, eps);
}

void norm_rows_backward(const at::Tensor& x_NH, const Normed& normed, const at::Tensor& gain_H,
                        const at::Tensor& dy_NH, const at::Tensor& plus_NH, NormGradients to) {
  fused::norm_rows_backward(Launch(), x_NH, normed, gain_H, dy_NH, plus_NH, to);
}

Rotary turns_of(const at::Tensor& positions_BS, const at::Tensor& frequencies, double factor) {
  return fused::turns_of(Launch(), positions_BS, frequencies, factor);
}

at::Tensor rotate(const at::Tensor& x_BShD, const Rotary& rotary, Turn turn) {
  return fused::rotate(Launch(), x_BShD, rotary, turn);
}

at::Tensor activate(shape::Activation activation, const MlpInputs& inputs) {
  return fused::activate(Launch(), activation, inputs);
}

MlpInputs activate_backward(shape::Activation activation, MlpInputs&& inputs, at::Tensor dproduct) {
  return fused::activate_backward(Launch(), activation, std::move(inputs), std::move(dproduct));
}

void sum_rows(const at::Tensor& t_NO, const at::Tensor& out_O) {
  fused::sum_rows(Launch(), t_NO, out_O);
}

void look_up(const Lookup& first, const Lookup& second, const at::Tensor& out_NH) {
  fused::look_up(Launch(), first, second, out_NH);
}

void look_up_backward(const at::Tensor& ids_N, const at::Tensor& dx_NH, const at::Tensor& out_VH) {
  fused::look_up_backward(Launch(), ids_N, dx_NH, out_VH);
}

Softmax::Softmax(const at::Tensor& targets_BS) : targets_N1_(targets_BS.view({-1, 1})) {
  const auto fp32 = targets_N1_.options().dtype(at::kFloat);
  max_N1_ = at::full(targets_N1_.sizes(), -std::numeric_limits<double>::infinity(), fp32);
  sum_N1_ = at::full(targets_N1_.sizes(), 0.0, fp32);
  target_logit_N1_ = at::full(targets_N1_.sizes(), 0.0, fp32);
}

void Softmax::add(Columns columns, const at::Tensor& logits_NC) {
  const fused::SoftmaxState state{targets_N1_, max_N1_, sum_N1_, target_logit_N1_};
  fused::see(Launch(), state, columns, logits_NC);
}

at::Tensor Softmax::gradient(Columns columns, at::Tensor logits_NC, const at::Tensor& scale) const {
  const fused::SoftmaxState state{targets_N1_, max_N1_, sum_N1_, target_logit_N1_};
  return fused::gradient(Launch(), state, columns, std::move(logits_NC), scale);
}

void Softmax::write_loss_sum(const at::Tensor& out) const {
  const fused::SoftmaxState state{targets_N1_, max_N1_, sum_N1_, target_logit_N1_};
  fused::write_loss_sum(Launch(), state, out);
}

}  // namespace sluice::model
