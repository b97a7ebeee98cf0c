#include "engine/model/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

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

at::Tensor join_heads(const at::Tensor& t_BhSD) {
  const at::Tensor t_BShD = t_BhSD.transpose(1, 2);
  return t_BShD.reshape({t_BShD.size(0) * t_BShD.size(1), t_BShD.size(2) * t_BShD.size(3)});
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

at::Tensor Attended::context_NQ() const {
  return join_heads(out_BhSD.detach());
}

Attended attend(const shape::Decoder& d, const ParamSource& params, at::Tensor n_NH,
                BatchShape shape, Keep keep) {
  Qkv qkv = project(d, params, n_NH);
  n_NH.reset();
  at::Tensor q = split_heads(std::exchange(qkv.q_NQ, {}), d, shape);
  at::Tensor k = split_heads(std::exchange(qkv.k_NK, {}), d, shape);
  at::Tensor v = split_heads(std::exchange(qkv.v_NK, {}), d, shape);
  if (d.positions == shape::Positions::kRotary) {
    const Rotary rotary = make_rotary(d, shape.seq, q.device());
    q = rotate(q, rotary, Turn::kForward);
    k = rotate(k, rotary, Turn::kForward);
  }
  Attended a{q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}};
  if (keep == Keep::kForBackward) {
    for (at::Tensor* t : {&a.q_BhSD, &a.k_BgSD, &a.v_BgSD}) *t = t->detach().requires_grad_(true);
  }
  const c10::AutoGradMode graph(keep == Keep::kForBackward);
  a.out_BhSD = at::scaled_dot_product_attention(
      a.q_BhSD, a.k_BgSD, a.v_BgSD, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*scale=*/std::nullopt, /*enable_gqa=*/d.kv_heads != d.heads);
  return a;
}

at::Tensor attend_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                           const at::Tensor& n_NH, Attended&& a, const at::Tensor& dcontext_NQ) {
  const BatchShape shape{a.q_BhSD.size(0), a.q_BhSD.size(2)};
  const at::Tensor dout = split_heads(dcontext_NQ, d, shape).transpose(1, 2);
  std::vector<at::Tensor> dheads =
      torch::autograd::grad({a.out_BhSD}, {a.q_BhSD, a.k_BgSD, a.v_BgSD}, {dout});
  a = {};
  if (d.positions == shape::Positions::kRotary) {
    const Rotary rotary = make_rotary(d, shape.seq, dout.device());
    for (at::Tensor* t : {&dheads[0], &dheads[1]}) {
      *t = rotate(t->transpose(1, 2), rotary, Turn::kBack).transpose(1, 2);
    }
  }
  Qkv dqkv{join_heads(dheads[0]), join_heads(dheads[1]), join_heads(dheads[2])};
  dheads.clear();
  return project_backward(d, params, grads, n_NH, std::move(dqkv));
}

}  // namespace sluice::model
