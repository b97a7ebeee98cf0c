#include "reference.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sluice::model::reference {
namespace {

using shape::Role;

at::Tensor norm(const shape::Decoder& d, const Weights& w, Role gain, Role bias,
                const at::Tensor& x) {
  if (d.norm == shape::Norm::kLayer) {
    return at::layer_norm(x, {d.hidden}, w.at(gain), w.at(bias), d.norm_eps);
  }
  return x / at::sqrt(x.pow(2).mean(-1, true) + d.norm_eps) * w.at(gain);
}

at::Tensor linear(const shape::Decoder& d, const Weights& w, Role weight, Role bias,
                  const at::Tensor& x) {
  const at::Tensor m = w.at(weight);
  const at::Tensor y =
      at::matmul(x, d.linear == shape::LinearLayout::kOutIn ? m.transpose(0, 1) : m);
  return w.contains(bias) ? y + w.at(bias) : y;
}

// x cos + rotate_half(x) sin, written over whole heads as transformers does.
at::Tensor rope(const shape::Decoder& d, const at::Tensor& positions, const at::Tensor& x_BhSD) {
  const auto fp32 = positions.options().dtype(at::kFloat);
  const at::Tensor inverse =
      1.0 / at::pow(d.rope.theta, at::arange(0, d.head_dim, 2, fp32) / double(d.head_dim));
  const at::Tensor angle = positions.to(at::kFloat).unsqueeze(-1) * inverse;
  const at::Tensor both = at::cat({angle, angle}, -1).unsqueeze(1);
  const auto halves = x_BhSD.chunk(2, -1);
  const at::Tensor rotated = at::cat({-halves[1], halves[0]}, -1);
  return x_BhSD * both.cos().to(at::kDouble) + rotated * both.sin().to(at::kDouble);
}

at::Tensor heads_first(const shape::Decoder& d, const at::Tensor& t) {
  return t.view({t.size(0), t.size(1), -1, d.head_dim}).transpose(1, 2);
}

at::Tensor attention(const shape::Decoder& d, const Weights& w, const at::Tensor& positions,
                     const at::Tensor& n) {
  at::Tensor q, k, v;
  if (d.fused_qkv) {
    const at::Tensor all = linear(d, w, Role::kQkvWeight, Role::kQkvBias, n);
    const std::int64_t kv = d.kv_heads * d.head_dim;
    const auto parts = all.split_with_sizes({d.heads * d.head_dim, kv, kv}, -1);
    q = parts[0], k = parts[1], v = parts[2];
  } else {
    q = linear(d, w, Role::kQWeight, Role::kQBias, n);
    k = linear(d, w, Role::kKWeight, Role::kKBias, n);
    v = linear(d, w, Role::kVWeight, Role::kVBias, n);
  }
  q = heads_first(d, q.contiguous()), k = heads_first(d, k.contiguous());
  v = heads_first(d, v.contiguous());
  if (d.qk_norm) {
    const auto normed = [&](const at::Tensor& x, Role gain) {
      return x * at::rsqrt(x.square().mean(-1, true) + d.norm_eps) * w.at(gain);
    };
    q = normed(q, Role::kQNormGain), k = normed(k, Role::kKNormGain);
  }
  if (d.positions == shape::Positions::kRotary)
    q = rope(d, positions, q), k = rope(d, positions, k);
  k = k.repeat_interleave(d.heads / d.kv_heads, 1);
  v = v.repeat_interleave(d.heads / d.kv_heads, 1);
  const std::int64_t seq = n.size(1);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(d.head_dim));
  const at::Tensor all = at::ones({seq, seq}, n.options().dtype(at::kBool));
  at::Tensor unseen = all.triu(1);
  if (d.window > 0) unseen = unseen.logical_or(all.tril(-d.window));
  const at::Tensor document = positions.eq(0).cumsum(1);
  const at::Tensor others = document.unsqueeze(1).ne(document.unsqueeze(2)).unsqueeze(1);
  scores = scores.masked_fill(others, -INFINITY).masked_fill(unseen, -INFINITY).softmax(-1);
  const at::Tensor out = at::matmul(scores, v).transpose(1, 2);
  return linear(d, w, Role::kOutWeight, Role::kOutBias,
                out.reshape({n.size(0), seq, d.heads * d.head_dim}));
}

at::Tensor activation(const shape::Decoder& d, const at::Tensor& x) {
  switch (d.activation) {
    case shape::Activation::kSilu:
      return x * at::sigmoid(x);
    case shape::Activation::kGelu:
      return 0.5 * x * (1.0 + at::erf(x / std::sqrt(2.0)));
    case shape::Activation::kGeluTanh:
      return 0.5 * x * (1.0 + at::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x.pow(3))));
  }
  return {};
}

at::Tensor mlp(const shape::Decoder& d, const Weights& w, const at::Tensor& n) {
  at::Tensor h = linear(d, w, Role::kUpWeight, Role::kUpBias, n);
  if (d.mlp == shape::Mlp::kGated) {
    h = h * activation(d, linear(d, w, Role::kGateWeight, Role::kGateBias, n));
  } else {
    h = activation(d, h);
  }
  return linear(d, w, Role::kDownWeight, Role::kDownBias, h);
}

}  // namespace

at::Tensor embed(const shape::Decoder& d, const Weights& w, const at::Tensor& tokens,
                 const at::Tensor& positions) {
  at::Tensor x = at::embedding(w.at(Role::kTokenEmbedding), tokens);
  if (d.positions == shape::Positions::kLearned) {
    x = x + at::embedding(w.at(Role::kPositionEmbedding), positions);
  }
  return x;
}

at::Tensor layer(const shape::Decoder& d, const Weights& w, const at::Tensor& positions,
                 const at::Tensor& x) {
  const at::Tensor mid =
      x +
      attention(d, w, positions, norm(d, w, Role::kAttentionNormGain, Role::kAttentionNormBias, x));
  return mid + mlp(d, w, norm(d, w, Role::kMlpNormGain, Role::kMlpNormBias, mid));
}

at::Tensor head(const shape::Decoder& d, const Weights& w, const at::Tensor& x,
                const at::Tensor& targets) {
  const at::Tensor n = norm(d, w, Role::kFinalNormGain, Role::kFinalNormBias, x);
  const at::Tensor m = w.at(d.tied_embeddings ? Role::kTokenEmbedding : Role::kHeadWeight);
  const at::Tensor logits = at::matmul(n, m.transpose(0, 1)).reshape({-1, d.vocab});
  return at::cross_entropy_loss(logits, targets.reshape({-1}), {}, at::Reduction::Sum, -100);
}

}  // namespace sluice::model::reference
