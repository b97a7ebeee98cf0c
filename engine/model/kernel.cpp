#include "engine/model/kernel.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/add.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>

#include <array>
#include <optional>
#include <tuple>
#include <utility>

namespace sluice::model {
namespace {

// The library's kernel knows one mask: causal, from the first key on. [Note: Windows] The tokens
// are cut into blocks of W, the window. A query sees its own block up to itself: causal. And of the
// block before it the keys behind its own place: row i sees j >= i of the W - 1 last ones, which is
// causal too when both are turned around. So two calls do, each for all blocks at a time, and
// nothing is calculated that no query sees. Softmax over two parts is put together by their
// log-sum-exps; backward needs the ones of the whole only.

Looked look_at_all(const Heads& h) {
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      h.q, h.k, h.v, /*dropout_p=*/0.0, /*is_causal=*/true);
  return {std::move(out), std::move(logsumexp)};
}

Heads look_at_all_backward(const Heads& h, const Looked& looked, const at::Tensor& dout) {
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      dout, h.q, h.k, h.v, looked.out, looked.logsumexp, /*dropout_p=*/0.0, /*is_causal=*/true);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

/// How tokens are cut into blocks of the window; the last is filled up with zeros, which no token
/// sees and which ask for nothing.
struct Cut {
  std::int64_t batch, seq, window, blocks;

  Cut(const at::Tensor& q_BhSD, std::int64_t window)
      : batch(q_BhSD.size(0)),
        seq(q_BhSD.size(2)),
        window(window),
        blocks((seq + window - 1) / window) {}

  /// [B, h, S, X] -> [B, n, h, W, X].
  at::Tensor cut(const at::Tensor& t) const {
    const std::int64_t missing = blocks * window - seq;
    const at::Tensor whole = missing == 0 ? t : at::constant_pad_nd(t, {0, 0, 0, missing});
    return whole.unflatten(2, at::IntArrayRef{blocks, window}).transpose(1, 2);
  }
  /// And back.
  at::Tensor join(const at::Tensor& t) const {
    return t.transpose(1, 2).flatten(2, 3).narrow(2, 0, seq);
  }
};

/// The kernel's [B n, h, W, X], of [B, n, h, W, X], and back.
at::Tensor flat(const at::Tensor& t) {
  return t.flatten(0, 1);
}
at::Tensor unflat(const at::Tensor& t, const at::Tensor& like) {
  return t.unflatten(0, at::IntArrayRef{like.size(0), like.size(1)});
}

/// The queries that see something of the block before theirs, and what they see of it.
at::Tensor later(const at::Tensor& t) {
  return t.narrow(1, 1, t.size(1) - 1).narrow(3, 0, t.size(3) - 1);
}
at::Tensor earlier(const at::Tensor& t) {
  return t.narrow(1, 0, t.size(1) - 1).narrow(3, 1, t.size(3) - 1);
}
at::Tensor turned(const at::Tensor& t) {
  return at::flip(t, {3});
}

struct Blocks {
  at::Tensor q, k, v;  // [B, n, h, W, D]

  Heads own() const { return {flat(q), flat(k), flat(v)}; }
  Heads before() const {
    return {flat(turned(later(q))), flat(turned(earlier(k))), flat(turned(earlier(v)))};
  }
};

at::Tensor column(const at::Tensor& t_BhS) {
  return t_BhS.unsqueeze(-1);
}

}  // namespace

Looked look(const Heads& heads, std::int64_t window) {
  if (window == 0 || window >= heads.q.size(2)) return look_at_all(heads);
  const Cut cut(heads.q, window);
  const Blocks blocks{cut.cut(heads.q), cut.cut(heads.k), cut.cut(heads.v)};
  const Looked own = look_at_all(blocks.own());
  at::Tensor out = unflat(own.out, blocks.q), sum = unflat(column(own.logsumexp), blocks.q);
  if (window > 1) {
    const Looked before = look_at_all(blocks.before());
    const at::Tensor like = later(blocks.q);
    const at::Tensor out_before = turned(unflat(before.out, like));
    const at::Tensor sum_before = turned(unflat(column(before.logsumexp), like));
    const at::Tensor sum_own = later(sum).clone();
    const at::Tensor both = at::logaddexp(sum_own, sum_before);
    const auto part = [&](const at::Tensor& of, const at::Tensor& its_sum) {
      return at::mul(of, at::exp(at::sub(its_sum, both)));  // fp32
    };
    later(out).copy_(part(later(out), sum_own).add_(part(out_before, sum_before)));
    later(sum).copy_(both);
  }
  return {cut.join(out), cut.join(sum).squeeze(-1)};
}

Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    std::int64_t window) {
  if (window == 0 || window >= heads.q.size(2)) return look_at_all_backward(heads, looked, dout);
  const Cut cut(heads.q, window);
  const Blocks blocks{cut.cut(heads.q), cut.cut(heads.k), cut.cut(heads.v)};
  const at::Tensor out = cut.cut(looked.out), dout_blocks = cut.cut(dout);
  const at::Tensor sum = cut.cut(column(looked.logsumexp));
  const Heads own =
      look_at_all_backward(blocks.own(), {flat(out), flat(sum).squeeze(-1)}, flat(dout_blocks));
  const at::Tensor dq = unflat(own.q, blocks.q), dk = unflat(own.k, blocks.k),
                   dv = unflat(own.v, blocks.v);
  if (window > 1) {
    const Heads before = look_at_all_backward(
        blocks.before(), {flat(turned(later(out))), flat(turned(later(sum))).squeeze(-1)},
        flat(turned(later(dout_blocks))));
    later(dq).add_(turned(unflat(before.q, later(blocks.q))));
    earlier(dk).add_(turned(unflat(before.k, earlier(blocks.k))));
    earlier(dv).add_(turned(unflat(before.v, earlier(blocks.v))));
  }
  return {cut.join(dq), cut.join(dk), cut.join(dv)};
}

}  // namespace sluice::model
