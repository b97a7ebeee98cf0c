#include "engine/model/attention.h"

#include <ATen/ops/cat.h>

#include <utility>

#include "engine/model/documents.h"
#include "engine/model/kernel.h"
#include "engine/model/rotary.h"

namespace sluice::model {
namespace {

using shape::Role;

struct Qkv {
  at::Tensor q_NQ, k_NK, v_NK;
};

Linear qkv_linear(const shape::Decoder& d, Role weight, Role bias) {
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

at::Tensor split_heads(const at::Tensor& t_NQ, const shape::Decoder& d, const Places& places) {
  return t_NQ.view({places.positions_BS.size(0), places.positions_BS.size(1),
                    t_NQ.size(1) / d.head_dim, d.head_dim});
}

/// As the kernel wants them: [B, h, S, D].
at::Tensor heads(const at::Tensor& t_NQ, const shape::Decoder& d, const Places& places) {
  return split_heads(t_NQ, d, places).transpose(1, 2);
}

at::Tensor join_heads(const at::Tensor& t_BhSD) {
  const at::Tensor t_BShD = t_BhSD.transpose(1, 2);
  return t_BShD.reshape({t_BShD.size(0) * t_BShD.size(1), t_BShD.size(2) * t_BShD.size(3)});
}

at::Tensor turn_heads(const at::Tensor& t_NQ, const shape::Decoder& d, const Places& places,
                      const Rotary& rotary, Turn turn) {
  return rotate(split_heads(t_NQ, d, places), rotary, turn).view({t_NQ.size(0), t_NQ.size(1)});
}

/// Each head's part of each token as a row.
at::Tensor head_rows(const at::Tensor& t_NQ, const shape::Decoder& d) {
  return t_NQ.reshape({-1, d.head_dim});
}

/// What backward needs again of the projections.
Qkv seen_by_norms(const shape::Decoder& d, const at::Tensor& q_NQ, const at::Tensor& k_NK) {
  return d.qk_norm ? Qkv{q_NQ, k_NK, {}} : Qkv{};
}

/// Queries and keys on their way to the kernel.
struct Scored {
  at::Tensor q_NQ, k_NK;
  Normed q_heads, k_heads;  ///< where heads are normed: rows of head_rows()
};

/// Takes what the projections gave.
Scored score_inputs(const shape::Decoder& d, const ParamSource& params, at::Tensor q_NQ,
                    at::Tensor k_NK, const Places& places) {
  Scored s{std::move(q_NQ), std::move(k_NK), {}, {}};
  if (d.qk_norm) {
    const std::vector<Norm> norms = head_norms(d);
    s.q_heads = forward(norms[0], params, head_rows(s.q_NQ, d));
    s.k_heads = forward(norms[1], params, head_rows(s.k_NK, d));
    s.q_NQ = s.q_heads.y_NH.view(s.q_NQ.sizes());
    s.k_NK = s.k_heads.y_NH.view(s.k_NK.sizes());
  }
  if (d.positions == shape::Positions::kRotary) {
    const Rotary rotary = make_rotary(d, places);
    s.q_NQ = turn_heads(s.q_NQ, d, places, rotary, Turn::kForward);
    s.k_NK = turn_heads(s.k_NK, d, places, rotary, Turn::kForward);
  }
  return s;
}

/// From the gradients of what the kernel took to those of the projections. `seen`: what the norms
/// of heads saw.
void score_inputs_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                           const Qkv& seen, const Scored& s, const Places& places, Qkv& dqkv) {
  if (d.positions == shape::Positions::kRotary) {
    const Rotary rotary = make_rotary(d, places);
    dqkv.q_NQ = turn_heads(dqkv.q_NQ, d, places, rotary, Turn::kBack);
    dqkv.k_NK = turn_heads(dqkv.k_NK, d, places, rotary, Turn::kBack);
  }
  if (d.qk_norm) {
    const std::vector<Norm> norms = head_norms(d);
    const auto back = [&](const Norm& norm, const at::Tensor& x_NQ, const Normed& normed,
                          at::Tensor& dx_NQ) {
      dx_NQ = backward(norm, params, grads, head_rows(x_NQ, d), normed, head_rows(dx_NQ, d))
                  .view(x_NQ.sizes());
    };
    back(norms[0], seen.q_NQ, s.q_heads, dqkv.q_NQ);
    back(norms[1], seen.k_NK, s.k_heads, dqkv.k_NK);
  }
}

}  // namespace

std::vector<Linear> attention_inputs(const shape::Decoder& d) {
  if (d.fused_qkv) return {qkv_linear(d, Role::kQkvWeight, Role::kQkvBias)};
  return {qkv_linear(d, Role::kQWeight, Role::kQBias), qkv_linear(d, Role::kKWeight, Role::kKBias),
          qkv_linear(d, Role::kVWeight, Role::kVBias)};
}

std::vector<Norm> head_norms(const shape::Decoder& d) {
  if (!d.qk_norm) return {};
  // Neither has a bias.
  return {{shape::Norm::kRms, d.norm_eps, Role::kQNormGain, Role::kQNormGain},
          {shape::Norm::kRms, d.norm_eps, Role::kKNormGain, Role::kKNormGain}};
}

Linear attention_output(const shape::Decoder& d) {
  return {d.linear, Role::kOutWeight,
          d.attention_out_bias ? std::optional(Role::kOutBias) : std::nullopt};
}

Attended attend(const shape::Decoder& d, const ParamSource& params, at::Tensor n_NH,
                const Places& places) {
  Qkv qkv = project(d, params, n_NH);
  n_NH.reset();
  const Qkv seen = seen_by_norms(d, qkv.q_NQ, qkv.k_NK);
  const Scored s =
      score_inputs(d, params, std::exchange(qkv.q_NQ, {}), std::exchange(qkv.k_NK, {}), places);
  const Looked looked =
      look({heads(s.q_NQ, d, places), heads(s.k_NK, d, places), heads(qkv.v_NK, d, places)},
           places.documents, d.window);
  return {d.qk_norm ? seen.q_NQ : s.q_NQ, d.qk_norm ? seen.k_NK : s.k_NK, qkv.v_NK,
          join_heads(looked.out), looked.logsumexp.transpose(1, 2).reshape({-1, d.heads})};
}

at::Tensor attend_backward(const shape::Decoder& d, const ParamSource& params, GradSink& grads,
                           const at::Tensor& n_NH, Attended&& a, const Places& places,
                           const at::Tensor& dcontext_NQ) {
  const Qkv seen = seen_by_norms(d, a.q_NQ, a.k_NK);
  Scored s =
      d.qk_norm ? score_inputs(d, params, a.q_NQ, a.k_NK, places) : Scored{a.q_NQ, a.k_NK, {}, {}};
  Heads dheads = look_backward(
      {heads(s.q_NQ, d, places), heads(s.k_NK, d, places), heads(a.v_NK, d, places)},
      {heads(a.context_NQ, d, places),
       a.logsumexp_Nh.view({places.positions_BS.size(0), places.positions_BS.size(1), d.heads})
           .transpose(1, 2)},
      heads(dcontext_NQ, d, places), places.documents, d.window);
  a = {};
  s.q_NQ.reset();
  s.k_NK.reset();
  Qkv dqkv{join_heads(std::exchange(dheads.q, {})), join_heads(std::exchange(dheads.k, {})),
           join_heads(std::exchange(dheads.v, {}))};
  score_inputs_backward(d, params, grads, seen, s, places, dqkv);
  return project_backward(d, params, grads, n_NH, std::move(dqkv));
}

}  // namespace sluice::model
