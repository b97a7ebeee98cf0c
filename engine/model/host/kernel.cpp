#include "engine/model/kernel.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/model/host/tiled.h"
#include "engine/model/host/widened.h"
#include "engine/model/one_by_one.h"
#include "engine/model/products.h"

namespace sluice::model {
namespace {

// What a window sees of all scores is a band, W wide. [Note: Windows] Forward cuts it into blocks
// of queries, each with its own keys and the W before them; backward into blocks of keys, each with
// its own queries and the W behind them. What lies outside the band is masked, and every block has
// the same mask. So a block wastes its own length beside W. The first W queries (forward) and the
// last W keys (backward) see plain causal attention.
//
// Blocks are views that overlap, and many go into one call. Only the gradient of queries is a sum
// over blocks: calls take blocks whose queries do not overlap, and are added one by one, in fp32.

/// The kernel takes 64 rows of queries at a time from 192 on, and 256 from 768 on: in backward
/// these are the window's, whose products with 256 keys are the smallest that bf16 has no trouble
/// with.
constexpr std::int64_t kForwardQueries = 192, kBackwardKeys = 256;

/// `mask`: added to the scores; none: causal.
Looked look_at(const Heads& h, const std::optional<at::Tensor>& mask = std::nullopt) {
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      h.q, h.k, h.v, /*dropout_p=*/0.0, /*is_causal=*/!mask.has_value(), mask);
  return {std::move(out), std::move(logsumexp)};
}

Heads run_backward(const Heads& h, const Looked& looked, const at::Tensor& dout,
                   const std::optional<at::Tensor>& mask) {
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      dout, h.q, h.k, h.v, looked.out, looked.logsumexp, /*dropout_p=*/0.0,
      /*is_causal=*/!mask.has_value(), mask);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

/// Heads of queries that are in fp32 at a time: a quarter of them, made up to what keeps all
/// threads busy. The same for any number of tokens: what a long document takes is enough for a
/// short one.
std::int64_t heads_at_once(const Heads& h) {
  const auto over = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t busy = over(at::get_num_threads(), h.q.size(0));
  return busy * over(over(h.q.size(1), 4), busy);
}

Heads look_at_backward(const Heads& h, const Looked& looked, const at::Tensor& dout,
                       std::int64_t at_once, const std::optional<at::Tensor>& mask = std::nullopt) {
  return is_widened(h.q) ? widened_backward(h, looked, dout, at_once, mask)
                         : run_backward(h, looked, dout, mask);
}

/// `count` runs of `length` tokens, one every `step`.
struct Blocks {
  std::int64_t begin, count, length, step;
};

/// Cuts tokens [begin, end) into blocks of `length`; the last may be shorter. Those of one element
/// are `apart` blocks from each other.
std::vector<Blocks> cut(std::int64_t begin, std::int64_t end, std::int64_t length,
                        std::int64_t apart) {
  const std::int64_t whole = (end - begin) / length;
  std::vector<Blocks> all;
  for (std::int64_t i = 0; i < std::min(whole, apart); ++i) {
    all.push_back({begin + i * length, (whole - i + apart - 1) / apart, length, apart * length});
  }
  const std::int64_t rest = begin + whole * length;
  if (rest < end) all.push_back({rest, 1, end - rest, length});
  return all;
}

/// Of [B, h, S, X] the kernel's [n, h, L, X], one for each sequence; or [B, h, L, X], one for each
/// block, where these are fewer. Views.
std::vector<at::Tensor> take(const at::Tensor& t, const Blocks& b) {
  const at::Tensor blocks = t.narrow(2, b.begin, (b.count - 1) * b.step + b.length)
                                .unfold(2, b.length, b.step)
                                .permute({0, 2, 1, 4, 3});
  return blocks.unbind(b.count < t.size(0) ? 1 : 0);
}

/// 0 for each key that a query sees, -inf for others. `ahead`: tokens from the first key to the
/// first query.
at::Tensor band(std::int64_t queries, std::int64_t keys, std::int64_t ahead, std::int64_t window,
                const at::TensorOptions& options) {
  return at::ones({queries, keys}, options).tril_(ahead).triu_(ahead - window + 1).log_();
}

/// The mask of a block, which may be a shorter one.
at::Tensor corner(const at::Tensor& mask, const Blocks& queries, const Blocks& keys) {
  return mask.narrow(0, 0, queries.length).narrow(1, 0, keys.length);
}

at::Tensor tokens(const at::Tensor& t, std::int64_t begin, std::int64_t count) {
  return t.narrow(2, begin, count);
}
Heads tokens(const Heads& h, std::int64_t begin, std::int64_t count) {
  return {tokens(h.q, begin, count), tokens(h.k, begin, count), tokens(h.v, begin, count)};
}

/// Keys or values, once for each of the `heads` that share them; and their gradients, of the sums.
/// In 16 bits that are not widened the kernel would round these sums after each head.
at::Tensor spread(const at::Tensor& t, std::int64_t heads) {
  const std::int64_t group = heads / t.size(1);
  return t.unsqueeze(2).expand({-1, -1, group, -1, -1}).flatten(1, 2);
}
void gather(const at::Tensor& to, const at::Tensor& of_heads) {
  at::Tensor sum = to;
  if (sum.size(1) == of_heads.size(1)) {  // nothing to sum, and a copy is much cheaper
    sum.copy_(of_heads);
    return;
  }
  at::sum_out(sum, of_heads.unflatten(1, at::IntArrayRef{to.size(1), -1}), 2);
}

/// One at a time: bf16 is copied to fp32 to be added to it, and a small copy stays in the caches.
void add_blocks(const at::Tensor& to, const at::Tensor& blocks) {
  for (std::int64_t i = 0; i < blocks.size(0); ++i) to[i].add_(blocks[i]);
}

at::Tensor column(const at::Tensor& t) {
  return t.unsqueeze(-1);
}

}  // namespace

Heads widened_backward(const Heads& h, const Looked& looked, const at::Tensor& dout,
                       std::int64_t at_once, const std::optional<at::Tensor>& mask) {
  const std::int64_t group = h.q.size(1) / h.k.size(1);
  const std::int64_t keys = (at_once + group - 1) / group;
  const auto wide = [](const at::Tensor& t) { return t.to(at::kFloat); };
  const auto wide_mask = mask ? std::optional(wide(*mask)) : std::nullopt;
  Heads d{at::empty_like(h.q), at::empty_like(h.k), at::empty_like(h.v)};
  for (std::int64_t begin = 0; begin < h.k.size(1); begin += keys) {
    const std::int64_t n = std::min(keys, h.k.size(1) - begin);
    const auto of_k = [&](const at::Tensor& t) { return t.narrow(1, begin, n); };
    const auto of_q = [&](const at::Tensor& t) { return t.narrow(1, begin * group, n * group); };
    const Heads some =
        run_backward({wide(of_q(h.q)), wide(of_k(h.k)), wide(of_k(h.v))},
                     {wide(of_q(looked.out)), of_q(looked.logsumexp)}, wide(of_q(dout)), wide_mask);
    of_q(d.q).copy_(some.q);
    of_k(d.k).copy_(some.k);
    of_k(d.v).copy_(some.v);
  }
  return d;
}

Looked look(const Heads& heads, std::int64_t window) {
  if (is_tiled(heads)) return tiled_look(heads, window);
  const std::int64_t batch = heads.q.size(0), n_heads = heads.q.size(1), seq = heads.q.size(2);
  if (window == 0 || window >= seq) return look_at(heads);
  Looked looked{
      at::empty_like(heads.q),
      at::empty({batch, seq, n_heads}, heads.q.options().dtype(at::kFloat)).transpose(1, 2)};
  const Looked first = look_at(tokens(heads, 0, window));
  tokens(looked.out, 0, window).copy_(first.out);
  tokens(looked.logsumexp, 0, window).copy_(first.logsumexp);

  const std::int64_t length = std::min(kForwardQueries, seq - window);
  const at::Tensor mask = band(length, length + window, window, window, heads.q.options());
  for (const Blocks& own : cut(window, seq, length, /*apart=*/1)) {
    const Blocks seen{own.begin - window, own.count, own.length + window, own.step};
    const auto q = take(heads.q, own), k = take(heads.k, seen), v = take(heads.v, seen);
    const auto out = take(looked.out, own), sum = take(column(looked.logsumexp), own);
    for (std::size_t i = 0; i < q.size(); ++i) {
      const Looked part = look_at({q[i], k[i], v[i]}, corner(mask, own, seen));
      out[i].copy_(part.out);
      sum[i].copy_(column(part.logsumexp));
    }
  }
  return looked;
}

Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    std::int64_t window) {
  if (is_tiled(heads)) return tiled_look_backward(heads, looked, dout, window);
  const std::int64_t n_heads = heads.q.size(1), seq = heads.q.size(2);
  const std::int64_t at_once = heads_at_once(heads);
  if (window == 0 || window >= seq) return look_at_backward(heads, looked, dout, at_once);
  const Heads d{at::zeros_like(heads.q, at::kFloat), at::empty_like(heads.k),
                at::empty_like(heads.v)};
  const std::int64_t length = std::min(kBackwardKeys, seq - window);
  const std::int64_t apart = (length + window + length - 1) / length;
  const at::Tensor mask = band(length + window, length, 0, window, heads.q.options());
  for (const Blocks& own : cut(0, seq - window, length, apart)) {
    const Blocks seeing{own.begin, own.count, own.length + window, own.step};
    const auto q = take(heads.q, seeing), k = take(heads.k, own), v = take(heads.v, own);
    const auto out = take(looked.out, seeing), sum = take(column(looked.logsumexp), seeing);
    const auto dout_seeing = take(dout, seeing), dq = take(d.q, seeing);
    const auto dk = take(d.k, own), dv = take(d.v, own);
    for (std::size_t i = 0; i < q.size(); ++i) {
      const Heads part = look_at_backward({q[i], spread(k[i], n_heads), spread(v[i], n_heads)},
                                          {out[i], sum[i].squeeze(-1)}, dout_seeing[i], at_once,
                                          corner(mask, seeing, own));
      add_blocks(dq[i], part.q);
      gather(dk[i], part.k);
      gather(dv[i], part.v);
    }
  }
  const auto last = [&](const at::Tensor& t) { return tokens(t, seq - window, window); };
  const Heads part =
      look_at_backward(tokens(heads, seq - window, window),
                       {last(looked.out), last(looked.logsumexp)}, last(dout), at_once);
  last(d.q).add_(part.q);
  last(d.k).copy_(part.k);
  last(d.v).copy_(part.v);
  return {d.q.to(heads.q.scalar_type()), d.k, d.v};
}

Looked look(const Heads& heads, const Documents& documents, std::int64_t window) {
  return look_one_by_one(heads, documents, window);
}

Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    const Documents& documents, std::int64_t window) {
  return look_one_by_one_backward(heads, looked, dout, documents, window);
}

}  // namespace sluice::model
