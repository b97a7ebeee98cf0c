#include "engine/model/softmax.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/log.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

namespace sluice::model {
namespace {

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

at::Tensor per_token(const at::Tensor& targets_N1, double value) {
  return at::full(targets_N1.sizes(), value, targets_N1.options().dtype(at::kFloat));
}

}  // namespace

Softmax::Softmax(const at::Tensor& targets_BS)
    : targets_N1_(targets_BS.view({-1, 1})),
      max_N1_(per_token(targets_N1_, -std::numeric_limits<double>::infinity())),
      sum_N1_(per_token(targets_N1_, 0.0)),
      target_logit_N1_(per_token(targets_N1_, 0.0)) {}

void Softmax::add(Columns columns, const at::Tensor& logits) {
  const at::Tensor logits_NC = logits.to(at::kFloat);
  const Picked picked = pick(targets_N1_, columns);
  target_logit_N1_ =
      at::where(picked.here_N1, at::gather(logits_NC, 1, picked.index_N1), target_logit_N1_);
  const at::Tensor max = at::maximum(max_N1_, at::amax(logits_NC, {1}, /*keepdim=*/true));
  const at::Tensor seen_NC = at::sub(logits_NC, max).exp_();
  sum_N1_.mul_(at::exp(max_N1_.sub_(max))).add_(at::sum(seen_NC, {1}, /*keepdim=*/true));
  max_N1_ = max;
}

at::Tensor Softmax::gradient(Columns columns, at::Tensor logits_NC, const at::Tensor& scale) const {
  at::Tensor seen_NC = std::move(logits_NC).to(at::kFloat).sub_(max_N1_).exp_();
  const at::Tensor none = at::zeros({}, sum_N1_.options());
  const at::Tensor scale_N1 = at::where(at::ge(targets_N1_, 0), scale.to(at::kFloat), none);
  const Picked picked = pick(targets_N1_, columns);
  seen_NC.mul_(at::div(scale_N1, sum_N1_));
  seen_NC.scatter_add_(1, picked.index_N1, at::where(picked.here_N1, scale_N1, none).neg_());
  return seen_NC;
}

void Softmax::write_loss_sum(const at::Tensor& out) const {
  const at::Tensor loss = at::log(sum_N1_).add_(max_N1_).sub_(target_logit_N1_);
  const at::Tensor none = at::zeros({}, loss.options());
  out.copy_(at::where(at::ge(targets_N1_, 0), loss, none).sum(at::kDouble));
}

}  // namespace sluice::model
