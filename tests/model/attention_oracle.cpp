#include "attention_oracle.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "harness.h"
#include "roundings.h"

namespace sluice::model {
namespace {

constexpr double kUnit = 0x1p-24;
/// Keys that a kernel takes at a time, at the least: after each it may scale what it has anew.
constexpr std::int64_t kFewestKeys = 32;

/// exp of a kernel. In 16 bits LibTorch's is a polynomial that is off by 1.1e-4 of its exponent of
/// two at most; in fp32 by 20 last bits.
double of_exp(at::ScalarType dtype) {
  return dtype == at::kFloat ? 40 * kUnit : 0x1p-13;
}

at::Tensor wide(const at::Tensor& t) {
  return t.detach().to(at::kDouble);
}

at::Tensor times(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(a, b);
}
at::Tensor turned(const at::Tensor& t) {
  return t.transpose(2, 3);
}

/// Of several roundings, one on top of the other, whose logarithms add up to so much.
at::Tensor grown(const at::Tensor& logarithms) {
  return logarithms.expm1();
}

/// What goes in, without signs, and what is between in and out; [1, h, S, S] or [1, h, S, 1]. With
/// s of scores, p of probabilities, x of what a probability is multiplied with in the way back.
struct Between {
  Between(const Heads& heads, const at::Tensor& dout, const at::Tensor& out, std::int64_t window) {
    const at::Tensor q = wide(heads.q), k = wide(heads.k), v = wide(heads.v), dy = wide(dout);
    const std::int64_t seq = q.size(2);
    dims = static_cast<double>(q.size(3));
    scale = 1 / std::sqrt(dims);
    seen = at::ones({seq, seq}, q.options()).tril_();
    if (window > 0) seen.triu_(1 - window);
    keys = static_cast<double>(window > 0 && window < seq ? window : seq);
    abs_q = q.abs(), abs_k = k.abs(), abs_v = v.abs(), abs_dy = dy.abs();
    most_s = (times(abs_q, turned(abs_k)) * seen).amax({3}, /*keepdim=*/true) * scale;
    p = (times(q, turned(k)) * scale).masked_fill(seen == 0, -INFINITY).softmax(-1);
    x = times(dy, turned(v)) - (dy * out).sum(-1, /*keepdim=*/true);
    most_x = times(abs_dy, turned(abs_v)) + (abs_dy * out.abs()).sum(-1, /*keepdim=*/true);
  }

  double dims, scale, keys;
  at::Tensor seen, abs_q, abs_k, abs_v, abs_dy, most_s, p, x, most_x;
};

/// What a probability may be off by, relative, before it is rounded to 16 bits. A score is a sum of
/// products, scaled, of which a greatest one is taken away: of these only what differs matters.
struct OfProbability {
  OfProbability(const Between& b, at::ScalarType dtype) {
    const double times_anew = b.keys / kFewestKeys + 1, log_keys = std::log(b.keys);
    const at::Tensor of_score = b.most_s * ((b.dims + 4 + 2 * times_anew) * kUnit) +
                                (of_exp(dtype) + 3 * times_anew * kUnit);
    // Above its sum, which is made of the same.
    ahead = 2 * of_score + (b.keys + 2) * kUnit;
    // From the logarithm of that sum, which is a sum itself.
    back = ahead + ((b.most_s + log_keys) * 8 + 8) * kUnit;
  }
  at::Tensor ahead, back;
};

/// Of one sequence, and the heads of queries that share one of keys.
ExactAttention exact_group(const Heads& heads, const at::Tensor& dout, std::int64_t window,
                           Narrow narrow) {
  const auto leaf = [](const at::Tensor& t) { return wide(t).clone().requires_grad_(true); };
  const Heads leaves{leaf(heads.q), leaf(heads.k), leaf(heads.v)};
  const at::Tensor of_leaves = all_scores(leaves, window), out = of_leaves.detach();
  const auto exact =
      torch::autograd::grad({of_leaves}, {leaves.q, leaves.k, leaves.v}, {wide(dout)});

  const at::ScalarType dtype = heads.q.scalar_type();
  const double unit_16 = dtype == at::kFloat ? 0 : unit(dtype), least = least_unit(dtype);
  const Between b(heads, dout, out, window);
  const OfProbability of_p(b, dtype);

  const at::Tensor of_out = grown(of_p.ahead + (b.keys * kUnit + unit_16)) * times(b.p, b.abs_v) +
                            least * times(b.seen, b.abs_v);

  // Rounded itself, `out` goes into each x.
  const at::Tensor off_out = of_out + (out.abs() + of_out) * unit_16 + least;
  const at::Tensor in_x = (b.abs_dy * off_out).sum(-1, /*keepdim=*/true);
  const at::Tensor off_x = in_x + (b.dims + 2) * kUnit * (b.most_x + in_x);
  const at::Tensor of_factor = of_p.back + (2 * kUnit + narrow.factors * unit_16);
  const at::Tensor off_p = b.p * grown(of_factor) + least * b.seen;
  const at::Tensor off_ds = off_p * b.x.abs() + of_factor.exp() * b.p * off_x + least * b.seen;

  const double keys = b.keys, queries = keys * static_cast<double>(heads.q.size(1));
  const auto sum = [&](const at::Tensor& value, const at::Tensor& off, double terms, double sums) {
    return off + std::expm1((terms + 2) * kUnit + sums * unit_16) * (value.abs() + off);
  };
  const auto over_heads = [](const at::Tensor& t) { return t.sum(1, /*keepdim=*/true); };
  const at::Tensor ds = b.p * b.x;
  const at::Tensor for_q = sum(ds, off_ds, keys, narrow.query_sums);
  const at::Tensor for_k = turned(sum(ds, off_ds, queries, narrow.key_sums));
  const at::Tensor for_v = turned(sum(b.p, off_p, queries, narrow.key_sums));
  const double least_q = narrow.query_sums * least, least_k = narrow.key_sums * least;
  return {{out, of_out},
          {exact[0], b.scale * times(for_q, b.abs_k) + least_q},
          {exact[1], over_heads(b.scale * times(for_k, b.abs_q)) + least_k},
          {exact[2], over_heads(times(for_v, b.abs_dy)) + least_k}};
}

Bounded unknown(const at::Tensor& like) {
  const at::Tensor nan = at::full_like(like, NAN, at::kDouble);
  return {nan, nan.clone()};
}
void set(const Bounded& to, const Bounded& from, std::int64_t sequence, std::int64_t head) {
  const auto put = [&](const at::Tensor& all, const at::Tensor& some) {
    all.narrow(0, sequence, 1).narrow(1, head, some.size(1)).copy_(some);
  };
  put(to.exact, from.exact);
  put(to.allowed, from.allowed);
}

}  // namespace

ExactAttention exact_attention(const Heads& heads, const at::Tensor& dout, std::int64_t window,
                               Narrow narrow) {
  const ExactAttention all{unknown(heads.q), unknown(heads.q), unknown(heads.k), unknown(heads.v)};
  const std::int64_t kv_heads = heads.k.size(1), group = heads.q.size(1) / kv_heads;
  for (std::int64_t i = 0; i < heads.q.size(0) * kv_heads; ++i) {
    const std::int64_t sequence = i / kv_heads, head = i % kv_heads;
    const auto of = [&](const at::Tensor& t) {
      const std::int64_t n = t.size(1) / kv_heads;
      return t.narrow(0, sequence, 1).narrow(1, head * n, n);
    };
    const ExactAttention some =
        exact_group({of(heads.q), of(heads.k), of(heads.v)}, of(dout), window, narrow);
    set(all.out, some.out, sequence, head * group);
    set(all.dq, some.dq, sequence, head * group);
    set(all.dk, some.dk, sequence, head);
    set(all.dv, some.dv, sequence, head);
  }
  return all;
}

void expect_within(const Looked& looked, const Heads& gradients, const ExactAttention& exact) {
  expect_within(looked.out, exact.out.exact, exact.out.allowed);
  expect_within(gradients.q, exact.dq.exact, exact.dq.allowed);
  expect_within(gradients.k, exact.dk.exact, exact.dk.allowed);
  expect_within(gradients.v, exact.dv.exact, exact.dv.allowed);
}

}  // namespace sluice::model
