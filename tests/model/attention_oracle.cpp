#include "attention_oracle.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "harness.h"
#include "roundings.h"

namespace sluice::model {
namespace {

// [Note: Bounds] With u = 2^-24, d dimensions, n keys that a query sees:
//   s = scale * sum q k     off by (d + 2) u of S = scale * sum |q| |k|
//   e = exp(s - max)        relative: what s is off by, u of s - max, exp's own; and again for each
//                           block of keys, behind which what was before is scaled to a new maximum
//   p = e / sum e           e's once, and e's and n u in the sum
//   out = sum p v           n u, and in 16 bits a rounding of p, of sum p |v|
//   l = max + log(sum e)    e's and n u, absolute, and roundings of no more than S + log n
// The way back takes p again, as exp(s - l). With y the gradient of out:
//   x = v y - out y         d u of both without signs, and what out is off by once it is rounded
//   ds = p x                relative what p is off by, and p times what x is off by
//   dq = scale * sum ds k   n u of sum |ds| |k|, and each time that it is rounded to 16 bits
//   dk = scale * sum ds q   the same over queries, as dv = sum p y
// Relative errors e1, e2, .. of what is multiplied make exp(e1 + e2 + ..) - 1 at most.
const double kUnit = unit(at::kFloat);
/// Keys that a kernel takes at a time, at the least.
constexpr std::int64_t kFewestKeys = 32;

/// exp's own error. In fp32 LibTorch's is off by 20 last bits. In 16 bits it is 2 to the power of a
/// polynomial, which is off by 1.1e-4 at most (7.4e-5 of the result), in units of 2^-17, of an
/// argument that is rounded (1.44 u of 87 at most): 9e-5 in all.
double of_exp(at::ScalarType dtype) {
  return dtype == at::kFloat ? 40 * kUnit : 0x1p-13;
}

at::Tensor wide(const at::Tensor& t) {
  return t.detach().to(at::kDouble);
}

at::Tensor turned(const at::Tensor& t) {
  return t.transpose(2, 3);
}

/// S, p and x, and what goes in without signs; [1, h, S, S] or [1, h, S, 1].
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
    most_s = (at::matmul(abs_q, turned(abs_k)) * seen).amax({3}, /*keepdim=*/true) * scale;
    const at::Tensor s = (at::matmul(q, turned(k)) * scale).masked_fill(seen == 0, -INFINITY);
    p = s.softmax(-1);
    l = s.logsumexp(-1, /*keepdim=*/true);
    x = at::matmul(dy, turned(v)) - (dy * out).sum(-1, /*keepdim=*/true);
    most_x = at::matmul(abs_dy, turned(abs_v)) + (abs_dy * out.abs()).sum(-1, /*keepdim=*/true);
  }

  double dims, scale, keys;
  at::Tensor seen, abs_q, abs_k, abs_v, abs_dy, most_s, p, l, x, most_x;
};

/// What p is off by, relative, ahead and on the way back, and what l is off by.
struct OfProbability {
  OfProbability(const Between& b, at::ScalarType dtype) {
    const double blocks = b.keys / kFewestKeys + 1;
    const at::Tensor of_e =
        b.most_s * ((b.dims + 4 + 2 * blocks) * kUnit) + (of_exp(dtype) + 3 * blocks * kUnit);
    const at::Tensor of_sum = of_e + b.keys * kUnit;
    const at::Tensor most_l = b.most_s + std::log(b.keys);
    logsumexp = of_sum * (1 + of_sum) + (3 * most_l + 2) * kUnit;
    ahead = of_e + of_sum * (1 + of_sum) + 2 * kUnit;
    back = of_e + logsumexp + (2 * most_l + 2) * kUnit;
  }
  at::Tensor ahead, back, logsumexp;
};

/// Of one sequence, and the heads of queries that share one of keys.
ExactAttention exact_group(const Heads& heads, const at::Tensor& dout, std::int64_t window,
                           Narrow narrow) {  // [Note: Bounds]
  const auto leaf = [](const at::Tensor& t) { return wide(t).clone().requires_grad_(true); };
  const Heads leaves{leaf(heads.q), leaf(heads.k), leaf(heads.v)};
  const at::Tensor of_leaves = all_scores(leaves, window), out = of_leaves.detach();
  const auto exact =
      torch::autograd::grad({of_leaves}, {leaves.q, leaves.k, leaves.v}, {wide(dout)});

  const at::ScalarType dtype = heads.q.scalar_type();
  const double unit_16 = dtype == at::kFloat ? 0 : unit(dtype), least = least_unit(dtype);
  const Between b(heads, dout, out, window);
  const OfProbability of_p(b, dtype);

  const at::Tensor of_out =
      (of_p.ahead + (b.keys * kUnit + unit_16)).expm1() * at::matmul(b.p, b.abs_v) +
      least * at::matmul(b.seen, b.abs_v);

  const at::Tensor off_out = of_out + (out.abs() + of_out) * unit_16 + least;
  const at::Tensor in_x = (b.abs_dy * off_out).sum(-1, /*keepdim=*/true);
  const at::Tensor off_x = in_x + (b.dims + 2) * kUnit * (b.most_x + in_x);
  const at::Tensor of_factor = of_p.back + (2 * kUnit + narrow.factors * unit_16);
  const at::Tensor off_p = b.p * of_factor.expm1() + least * b.seen;
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
          {b.l, of_p.logsumexp},
          {exact[0], b.scale * at::matmul(for_q, b.abs_k) + least_q},
          {exact[1], over_heads(b.scale * at::matmul(for_k, b.abs_q)) + least_k},
          {exact[2], over_heads(at::matmul(for_v, b.abs_dy)) + least_k}};
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
  const ExactAttention all{unknown(heads.q), unknown(heads.q.narrow(3, 0, 1)), unknown(heads.q),
                           unknown(heads.k), unknown(heads.v)};
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
    set(all.logsumexp, some.logsumexp, sequence, head * group);
    set(all.dq, some.dq, sequence, head * group);
    set(all.dk, some.dk, sequence, head);
    set(all.dv, some.dv, sequence, head);
  }
  return all;
}

void expect_within(const Looked& looked, const Heads& gradients, const ExactAttention& exact) {
  expect_within(looked.out, exact.out.exact, exact.out.allowed);
  expect_within(looked.logsumexp.unsqueeze(-1), exact.logsumexp.exact, exact.logsumexp.allowed);
  expect_within(gradients.q, exact.dq.exact, exact.dq.allowed);
  expect_within(gradients.k, exact.dk.exact, exact.dk.allowed);
  expect_within(gradients.v, exact.dv.exact, exact.dv.allowed);
}

}  // namespace sluice::model
