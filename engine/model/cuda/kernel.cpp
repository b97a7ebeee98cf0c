#include "engine/model/kernel.h"

#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <tuple>

#include "engine/base/error.h"
#include "engine/model/one_by_one.h"
#include "engine/tensor/workspace.h"

namespace sluice::model {
namespace {

// In 16 bits flash attention, which takes a batch of rows or all its documents side by side; in
// fp32 the memory-efficient kernel, row by row or document by document: side by side it would keep
// its sums for as many tokens as the longest has, of each. Both take tokens first, [B, S, h, D].

bool in_fp32(const Heads& heads) {
  return heads.q.scalar_type() == at::kFloat;
}

at::Tensor by_token(const at::Tensor& t_BhSD) {
  return t_BhSD.transpose(1, 2);
}
at::Tensor by_head(const at::Tensor& t_BShD) {
  return t_BShD.transpose(1, 2);
}

/// The kernels want widths of whole vectors: zeros behind a head change no score and no context.
at::Tensor filled(const at::Tensor& t) {
  constexpr std::int64_t kVector = 8;
  const std::int64_t missing = (kVector - t.size(-1) % kVector) % kVector;
  return missing == 0 ? t : at::constant_pad_nd(t, {0, missing});
}
at::Tensor unfilled(const at::Tensor& t, std::int64_t width) {
  return t.narrow(-1, 0, width);
}

/// Of the width that scores are of, filled or not.
double scale_of(const Heads& heads) {
  return 1 / std::sqrt(static_cast<double>(heads.q.size(3)));
}

/// A window of all tokens is none, and must not choose another kernel.
std::optional<std::int64_t> window_of(std::int64_t window, std::int64_t tokens) {
  return 0 < window && window < tokens ? std::optional(window) : std::nullopt;
}

/// What the kernels would draw from, were anything dropped out.
struct NoDropout {
  static constexpr double kProbability = 0;
  at::Tensor state, offset;
  NoDropout(const at::Tensor& beside, at::ScalarType type)
      : state(at::empty({2}, beside.options().dtype(type))),
        offset(at::empty({}, beside.options().dtype(type))) {}
};

/// What one call of flash attention is about: rows of one length, or documents side by side.
struct Flash {
  at::Tensor ends;  // none: rows
  std::int64_t longest;
  double scale;
  std::optional<std::int64_t> window;

  std::optional<at::Tensor> optional_ends() const {
    return ends.defined() ? std::optional(ends) : std::nullopt;
  }
  /// Tokens before itself.
  std::optional<std::int64_t> left() const {
    return window ? std::optional(*window - 1) : std::nullopt;
  }

  /// Operands: [B, S, h, D] or, of documents, [tokens, h, D].
  Looked forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    auto all = at::_flash_attention_forward(
        q, k, v, optional_ends(), optional_ends(), longest, longest, NoDropout::kProbability,
        /*is_causal=*/true, /*return_debug_mask=*/false, scale, left(), /*window_size_right=*/0);
    return {std::get<0>(all), std::get<1>(all)};
  }
  Heads backward(const Heads& h, const Looked& looked, const at::Tensor& dout) const {
    const NoDropout none(h.q, at::kUInt64);
    auto [dq, dk, dv] = at::_flash_attention_backward(
        dout, h.q, h.k, h.v, looked.out, looked.logsumexp, ends, ends, longest, longest,
        NoDropout::kProbability, /*is_causal=*/true, none.state, none.offset, scale, left(),
        /*window_size_right=*/0);
    return {dq, dk, dv};
  }
};

Flash flash_of_rows(const Heads& heads, std::int64_t window) {
  const std::int64_t tokens = heads.q.size(2);
  return {{}, tokens, scale_of(heads), window_of(window, tokens)};
}

/// Of a group's, counted from its first token.
Flash flash_of_documents(const Heads& heads, const Documents& documents, const Group& group,
                         std::int64_t window) {
  SLUICE_CHECK(documents.ends.defined(), kLogic, "attention: no ends of documents on the device");
  std::int64_t longest = 0;
  for (const Document& document : std::span(documents.all).subspan(group.first, group.count)) {
    longest = std::max(longest, document.tokens);
  }
  const at::Tensor ends = documents.ends.narrow(0, static_cast<std::int64_t>(group.first),
                                                static_cast<std::int64_t>(group.count) + 1);
  return {group.begin == 0 ? ends : ends.sub(group.begin), longest, scale_of(heads),
          window_of(window, longest)};
}

at::Tensor side_by_side(const at::Tensor& t_BhSD) {
  return filled(by_token(t_BhSD)).flatten(0, 1);
}
at::Tensor rows_again(const at::Tensor& t_NhD, const at::Tensor& like_BhSD) {
  return by_head(unfilled(t_NhD, like_BhSD.size(3))
                     .unflatten(0, at::IntArrayRef{like_BhSD.size(0), like_BhSD.size(2)}));
}

// The memory-efficient kernel.

constexpr std::int64_t kCausalFromTopLeft = 1;  // its custom_mask_type

/// It has one key for each query's head: [B, S, h, D], and back, summed over a group.
at::Tensor spread(const at::Tensor& t_BSkD, std::int64_t heads) {
  const std::int64_t group = heads / t_BSkD.size(2);
  return t_BSkD.unsqueeze(3).expand({-1, -1, -1, group, -1}).flatten(2, 3);
}
at::Tensor gathered(const at::Tensor& t_BShD, std::int64_t kv_heads) {
  if (t_BShD.size(2) == kv_heads) return t_BShD;
  return t_BShD.unflatten(2, at::IntArrayRef{kv_heads, -1}).sum(3);
}

Heads efficient_operands(const Heads& heads) {
  const std::int64_t n = heads.q.size(1);
  return {filled(by_token(heads.q)), spread(filled(by_token(heads.k)), n),
          spread(filled(by_token(heads.v)), n)};
}

Looked look_efficient(const Heads& heads, std::int64_t window) {
  const Heads h = efficient_operands(heads);
  auto all = at::_efficient_attention_forward(
      h.q, h.k, h.v, /*bias=*/{}, /*cu_seqlens_q=*/{}, /*cu_seqlens_k=*/{}, /*max_seqlen_q=*/{},
      /*max_seqlen_k=*/{}, NoDropout::kProbability, kCausalFromTopLeft,
      /*compute_log_sumexp=*/true, scale_of(heads), /*seqlen_k=*/{},
      window_of(window, heads.q.size(2)));
  return {by_head(unfilled(std::get<0>(all), heads.q.size(3))),
          std::get<1>(all).narrow(2, 0, heads.q.size(2))};
}

/// The kernel reads its own sums in whole groups of tokens; behind the last one, infinity.
at::Tensor sums_in_groups(const at::Tensor& logsumexp_BhS) {
  constexpr std::int64_t kGroup = 32;
  const std::int64_t seq = logsumexp_BhS.size(2);
  const std::int64_t whole = (seq + kGroup - 1) / kGroup * kGroup;
  const at::Tensor sums =
      at::full({logsumexp_BhS.size(0), logsumexp_BhS.size(1), whole},
               std::numeric_limits<double>::infinity(), logsumexp_BhS.options());
  sums.narrow(2, 0, seq).copy_(logsumexp_BhS);
  return sums;
}

Heads look_efficient_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                              std::int64_t window) {
  const Heads h = efficient_operands(heads);
  const NoDropout none(h.q, at::kLong);
  // Keys are not split between blocks, whose sums would come in no fixed order.
  auto [dq, dk, dv, dbias] = at::_efficient_attention_backward(
      filled(by_token(dout)), h.q, h.k, h.v, /*bias=*/{}, filled(by_token(looked.out)).contiguous(),
      /*cu_seqlens_q=*/{}, /*cu_seqlens_k=*/{}, heads.q.size(2), heads.k.size(2),
      sums_in_groups(looked.logsumexp), NoDropout::kProbability, none.offset, none.offset,
      kCausalFromTopLeft, /*bias_requires_grad=*/false, scale_of(heads), /*num_splits_key=*/1,
      window_of(window, heads.q.size(2)));
  const std::int64_t width = heads.q.size(3), kv_heads = heads.k.size(1);
  return {by_head(unfilled(dq, width)), by_head(gathered(unfilled(dk, width), kv_heads)),
          by_head(gathered(unfilled(dv, width), kv_heads))};
}

}  // namespace

Looked look(const Heads& heads, std::int64_t window) {
  if (in_fp32(heads)) return look_efficient(heads, window);
  const auto operand = [](const at::Tensor& t) { return filled(by_token(t)); };
  const Looked looked =
      flash_of_rows(heads, window).forward(operand(heads.q), operand(heads.k), operand(heads.v));
  return {by_head(unfilled(looked.out, heads.q.size(3))), looked.logsumexp};
}

Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    std::int64_t window) {
  if (in_fp32(heads)) return look_efficient_backward(heads, looked, dout, window);
  const auto operand = [](const at::Tensor& t) { return filled(by_token(t)); };
  const Heads d =
      flash_of_rows(heads, window)
          .backward({operand(heads.q), operand(heads.k), operand(heads.v)},
                    {operand(looked.out), looked.logsumexp.contiguous()}, operand(dout));
  const auto result = [&](const at::Tensor& t) { return by_head(unfilled(t, heads.q.size(3))); };
  return {result(d.q), result(d.k), result(d.v)};
}

Looked look(const Heads& heads, const Documents& documents, std::int64_t window) {
  if (in_fp32(heads) || documents.are_rows(heads.q.size(0))) {
    return look_one_by_one(heads, documents, window);
  }
  const at::Tensor& q = heads.q;
  const Group all{0, documents.all.size(), 0, q.size(0) * q.size(2)};
  const Looked looked = flash_of_documents(heads, documents, all, window)
                            .forward(side_by_side(q), side_by_side(heads.k), side_by_side(heads.v));
  // Its sums are of [h, tokens] then.
  const at::Tensor sums_hBS = looked.logsumexp.view({q.size(1), q.size(0), q.size(2)});
  return {rows_again(looked.out, q), sums_hBS.transpose(0, 1)};
}

Heads look_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                    const Documents& documents, std::int64_t window) {
  if (in_fp32(heads) || documents.are_rows(heads.q.size(0))) {
    return look_one_by_one_backward(heads, looked, dout, documents, window);
  }
  const Heads h{side_by_side(heads.q), side_by_side(heads.k), side_by_side(heads.v)};
  const at::Tensor sums_hN = looked.logsumexp.transpose(0, 1).contiguous().flatten(1, 2);
  const at::Tensor out = side_by_side(looked.out), dout_NhD = side_by_side(dout);
  const Heads all{at::empty_like(h.q), at::empty_like(h.k), at::empty_like(h.v)};
  for (const Group& group : groups_of(documents.all, h.q.size(0))) {
    const tensor::Stack stack;
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, group.begin, group.tokens); };
    const Heads d =
        flash_of_documents(heads, documents, group, window)
            .backward({part(h.q), part(h.k), part(h.v)},
                      {part(out), sums_hN.narrow(1, group.begin, group.tokens).contiguous()},
                      part(dout_NhD));
    part(all.q).copy_(d.q);
    part(all.k).copy_(d.k);
    part(all.v).copy_(d.v);
  }
  return {rows_again(all.q, heads.q), rows_again(all.k, heads.k), rows_again(all.v, heads.v)};
}

}  // namespace sluice::model
