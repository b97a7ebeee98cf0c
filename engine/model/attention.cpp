#include "engine/model/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>

#include <utility>

#include "engine/model/rotary.h"

namespace sluice::model {
namespace {

using shape::Role;

struct Qkv {
  at::Tensor q_NQ, k_NK, v_NK;
};

Linear make_linear(const shape::Decoder& d, Role weight, Role bias) {
  return {d.linear, weight, d.qkv_bias ? std::optional(bias) : std::nullopt};
}

Qkv project(const shape::Decoder& d, const ParamSource& params, const at::Tensor& n_NH) {
  const std::vector<Linear> inputs = attention_inputs(d);
  if (!d.fused_qkv) {
    return {forward(inputs[0], params, n_NH), forward(inputs[1], params, n_NH),
            forward(inputs[2], params, n_NH)};
  }
  const std::int64_t q = d.heads * d.head_dim;
  const std::int64_t kv = d.kv_heads * d.head_dim;
  const at::Tensor all = forward(inputs[0], params, n_NH);
  return {all.narrow(1, 0, q), all.narrow(1, q, kv), all.narrow(1, q + kv, kv)};
}

at::Tensor project_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                            const at::Tensor& n_NH, Qkv&& dqkv) {
  const std::vector<Linear> inputs = attention_inputs(d);
  if (d.fused_qkv) {
    const at::Tensor dall = at::cat({dqkv.q_NQ, dqkv.k_NK, dqkv.v_NK}, 1);
    dqkv = {};
    return backward(inputs[0], params, grads, n_NH, dall);
  }
  at::Tensor dn = backward(inputs[0], params, grads, n_NH, dqkv.q_NQ);
  dn.add_(backward(inputs[1], params, grads, n_NH, dqkv.k_NK));
  return dn.add_(backward(inputs[2], params, grads, n_NH, dqkv.v_NK));
}

at::Tensor split_heads(const at::Tensor& t_NQ, const shape::Decoder& d, BatchShape shape) {
  return t_NQ.view({shape.batch, shape.seq, t_NQ.size(1) / d.head_dim, d.head_dim});
}

/// As the kernel wants them: [B, h, S, D].
at::Tensor heads(const at::Tensor& t_NQ, const shape::Decoder& d, BatchShape shape) {
  return split_heads(t_NQ, d, shape).transpose(1, 2);
}

at::Tensor join_heads(const at::Tensor& t_BhSD) {
  const at::Tensor t_BShD = t_BhSD.transpose(1, 2);
  return t_BShD.reshape({t_BShD.size(0) * t_BShD.size(1), t_BShD.size(2) * t_BShD.size(3)});
}

at::Tensor turn_heads(const at::Tensor& t_NQ, const shape::Decoder& d, BatchShape shape,
                      const Rotary& rotary, Turn turn) {
  return rotate(split_heads(t_NQ, d, shape), rotary, turn).view({t_NQ.size(0), t_NQ.size(1)});
}

}  // namespace

std::vector<Linear> attention_inputs(const shape::Decoder& d) {
  if (d.fused_qkv) return {make_linear(d, Role::kQkvWeight, Role::kQkvBias)};
  return {make_linear(d, Role::kQWeight, Role::kQBias),
          make_linear(d, Role::kKWeight, Role::kKBias),
          make_linear(d, Role::kVWeight, Role::kVBias)};
}

Linear attention_output(const shape::Decoder& d) {
  return {d.linear, Role::kOutWeight,
          d.attention_out_bias ? std::optional(Role::kOutBias) : std::nullopt};
}

Attended attend(const shape::Decoder& d, const ParamSource& params, at::Tensor n_NH,
                BatchShape shape) {
  Qkv qkv = project(d, params, n_NH);
  n_NH.reset();
  if (d.positions == shape::Positions::kRotary) {
    const Rotary rotary = make_rotary(d, shape.seq, qkv.q_NQ.device());
    qkv.q_NQ = turn_heads(qkv.q_NQ, d, shape, rotary, Turn::kForward);
    qkv.k_NK = turn_heads(qkv.k_NK, d, shape, rotary, Turn::kForward);
  }
  const auto [out_BhSD, logsumexp_BhS] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads(qkv.q_NQ, d, shape), heads(qkv.k_NK, d, shape), heads(qkv.v_NK, d, shape),
      /*dropout_p=*/0.0, /*is_causal=*/true);
  return {qkv.q_NQ, qkv.k_NK, qkv.v_NK, join_heads(out_BhSD),
          logsumexp_BhS.transpose(1, 2).reshape({-1, d.heads})};
}

at::Tensor attend_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                           const at::Tensor& n_NH, Attended&& a, BatchShape shape,
                           const at::Tensor& dcontext_NQ) {
  const auto logsumexp_BhS = a.logsumexp_Nh.view({shape.batch, shape.seq, d.heads}).transpose(1, 2);
  auto [dq_BhSD, dk_BgSD, dv_BgSD] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      heads(dcontext_NQ, d, shape), heads(a.q_NQ, d, shape), heads(a.k_NK, d, shape),
      heads(a.v_NK, d, shape), heads(a.context_NQ, d, shape), logsumexp_BhS,
      /*dropout_p=*/0.0, /*is_causal=*/true);
  a = {};
  Qkv dqkv{join_heads(std::exchange(dq_BhSD, {})), join_heads(std::exchange(dk_BgSD, {})),
           join_heads(std::exchange(dv_BgSD, {}))};
  if (d.positions == shape::Positions::kRotary) {
    const Rotary rotary = make_rotary(d, shape.seq, dcontext_NQ.device());
    dqkv.q_NQ = turn_heads(dqkv.q_NQ, d, shape, rotary, Turn::kBack);
    dqkv.k_NK = turn_heads(dqkv.k_NK, d, shape, rotary, Turn::kBack);
  }
  return project_backward(d, params, grads, n_NH, std::move(dqkv));
}

}  // namespace sluice::model
