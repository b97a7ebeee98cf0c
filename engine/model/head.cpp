#include <ATen/ops/amax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/log.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/model/blocks.h"
#include "engine/model/norm.h"

namespace sluice::model {
namespace {

using shape::Role;

Role weight_role(const shape::Decoder& d) {
  return d.tied_embeddings ? Role::kTokenEmbedding : Role::kHeadWeight;
}

/// Some columns of the vocabulary.
struct Columns {
  std::int64_t begin;
  std::int64_t n;

  at::Tensor rows_of(const at::Tensor& t_VH) const { return t_VH.narrow(0, begin, n); }
};

/// Where in its columns each token's target lies.
struct Picked {
  at::Tensor here_N1;   // bool
  at::Tensor index_N1;  // int64; 0 when not here
};

Picked pick(const at::Tensor& targets_N1, Columns columns) {
  const at::Tensor index = at::sub(targets_N1, columns.begin);
  const at::Tensor here = at::ge(index, 0).logical_and_(at::lt(index, columns.n));
  return {here, at::mul(index, here)};
}

/// The cross entropy of logits that are seen column by column: a running log-sum-exp per token.
class Softmax {
 public:
  explicit Softmax(const at::Tensor& targets_BS)
      : targets_N1_(targets_BS.view({-1, 1})),
        max_N1_(per_token(-std::numeric_limits<double>::infinity())),
        sum_N1_(per_token(0.0)),
        target_logit_N1_(per_token(0.0)) {}

  /// Takes fp32 logits over and leaves exp(logits - greatest so far) in their place.
  void add(Columns columns, at::Tensor& logits_NC) {
    const Picked picked = pick(targets_N1_, columns);
    target_logit_N1_ =
        at::where(picked.here_N1, at::gather(logits_NC, 1, picked.index_N1), target_logit_N1_);
    const at::Tensor max = at::maximum(max_N1_, at::amax(logits_NC, {1}, /*keepdim=*/true));
    logits_NC.sub_(max).exp_();
    sum_N1_.mul_(at::exp(max_N1_.sub_(max))).add_(at::sum(logits_NC, {1}, /*keepdim=*/true));
    max_N1_ = max;
  }

  /// One fp64.
  void write_loss_sum(const at::Tensor& out) const {
    const at::Tensor loss = at::log(sum_N1_).add_(max_N1_).sub_(target_logit_N1_);
    const at::Tensor none = at::zeros({}, loss.options());
    out.copy_(at::where(at::ge(targets_N1_, 0), loss, none).sum(at::kDouble));
  }

  /// exp(logits - the greatest of all columns), which add() leaves when it has seen them all.
  void exponentiate(at::Tensor& logits_NC) const { logits_NC.sub_(max_N1_).exp_(); }

  /// Turns these exponentials into the gradient of the loss's sum, times `scale`, by the logits.
  void differentiate(Columns columns, at::Tensor& exponentials_NC, const at::Tensor& scale) const {
    const at::Tensor none = at::zeros({}, sum_N1_.options());
    const at::Tensor scale_N1 = at::where(at::ge(targets_N1_, 0), scale.to(at::kFloat), none);
    const Picked picked = pick(targets_N1_, columns);
    exponentials_NC.mul_(at::div(scale_N1, sum_N1_));
    exponentials_NC.scatter_add_(1, picked.index_N1,
                                 at::where(picked.here_N1, scale_N1, none).neg_());
  }

 private:
  at::Tensor per_token(double value) const {
    return at::full(targets_N1_.sizes(), value, targets_N1_.options().dtype(at::kFloat));
  }

  at::Tensor targets_N1_;
  at::Tensor max_N1_, sum_N1_, target_logit_N1_;
};

/// The head over normed inputs.
class Head {
 public:
  Head(at::Tensor weight_VH, at::Tensor n_NH, std::int64_t loss_chunk)
      : weight_VH_(std::move(weight_VH)), n_NH_(std::move(n_NH)), chunk_(loss_chunk) {
    SLUICE_CHECK(chunk_ > 0, kLogic, fmt::format("loss_chunk: asked {} columns", chunk_));
  }

  bool one_chunk() const { return chunk_ >= vocab(); }

  template <class Body>
  void for_columns(Body body) const {
    for (std::int64_t begin = 0; begin < vocab(); begin += chunk_) {
      body(Columns{begin, std::min(chunk_, vocab() - begin)});
    }
  }

  at::Tensor logits_fp32(Columns columns) const {
    return at::mm(n_NH_, columns.rows_of(weight_VH_).t()).to(at::kFloat);
  }

  /// Writes the weight gradient of these columns; returns their part of the gradient of n.
  at::Tensor backward(Columns columns, const at::Tensor& dlogits_NC,
                      const at::Tensor& dweight_VH) const {
    at::Tensor dweight = columns.rows_of(dweight_VH);
    at::mm_out(dweight, dlogits_NC.t(), n_NH_);
    return at::mm(dlogits_NC, columns.rows_of(weight_VH_));
  }

 private:
  std::int64_t vocab() const { return weight_VH_.size(0); }

  at::Tensor weight_VH_, n_NH_;
  std::int64_t chunk_;
};

Softmax see_all(const Head& head, const at::Tensor& targets_BS) {
  Softmax softmax(targets_BS);
  head.for_columns([&](Columns columns) {
    at::Tensor logits = head.logits_fp32(columns);
    softmax.add(columns, logits);
  });
  return softmax;
}

/// The way there and back: the gradient of the head's input.
at::Tensor train_at_once(const Head& head, const at::Tensor& targets_BS, const at::Tensor& scale,
                         const at::Tensor& dweight_VH, const at::Tensor& out_loss) {
  Softmax softmax(targets_BS);
  const Columns all{0, dweight_VH.size(0)};
  at::Tensor t = head.logits_fp32(all);
  softmax.add(all, t);
  softmax.write_loss_sum(out_loss);
  softmax.differentiate(all, t, scale);
  t = t.to(dweight_VH.scalar_type());
  return head.backward(all, t, dweight_VH);
}

// The second pass makes each part's logits again: they never exist all at once.
at::Tensor train_in_parts(const Head& head, const at::Tensor& targets_BS, const at::Tensor& scale,
                          const at::Tensor& dweight_VH, const at::Tensor& out_loss) {
  const Softmax softmax = see_all(head, targets_BS);
  softmax.write_loss_sum(out_loss);
  at::Tensor dn =
      at::zeros({targets_BS.numel(), dweight_VH.size(1)}, dweight_VH.options().dtype(at::kFloat));
  head.for_columns([&](Columns columns) {
    at::Tensor t = head.logits_fp32(columns);
    softmax.exponentiate(t);
    softmax.differentiate(columns, t, scale);
    t = t.to(dweight_VH.scalar_type());
    dn.add_(head.backward(columns, t, dweight_VH));
  });
  return dn;
}

}  // namespace

void head_train(const shape::Decoder& d, const ParamSource& params, const at::Tensor& x_BSH,
                const at::Tensor& targets_BS, const at::Tensor& scale, std::int64_t loss_chunk,
                GradSink& grads, at::Tensor out_dx_BSH, at::Tensor out_loss) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = x_BSH.view({-1, d.hidden});
  Normed normed = forward(final_norm(d), params, x);
  at::Tensor dn;
  {
    const Head head(params.weight(weight_role(d)), std::exchange(normed.y_NH, {}), loss_chunk);
    const auto train = head.one_chunk() ? train_at_once : train_in_parts;
    dn = train(head, targets_BS, scale, grads.gradient(weight_role(d)), out_loss);
  }
  const at::Tensor dx = backward(final_norm(d), params, grads, x, normed, dn);
  out_dx_BSH.view({-1, d.hidden}).copy_(dx);
}

void head_loss(const shape::Decoder& d, const ParamSource& params, const at::Tensor& x_BSH,
               const at::Tensor& targets_BS, std::int64_t loss_chunk, at::Tensor out_loss) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = x_BSH.view({-1, d.hidden});
  const Head head(params.weight(weight_role(d)), forward(final_norm(d), params, x).y_NH,
                  loss_chunk);
  see_all(head, targets_BS).write_loss_sum(out_loss);
}

}  // namespace sluice::model
