#include "engine/model/softmax.h"

#include <ATen/ops/full.h>

#include <cmath>
#include <limits>
#include <utility>

#include "engine/model/host/shared_out.h"

namespace sluice::model {

using namespace rows;

namespace {

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
  const at::Tensor logits_NC = logits.contiguous();
  const Elem elem = elem_of(logits_NC);
  const SoftmaxArgs args{out(logits_NC),
                         in<std::int64_t>(targets_N1_),
                         out<float>(max_N1_),
                         out<float>(sum_N1_),
                         out<float>(target_logit_N1_),
                         columns.begin,
                         columns.n};
  share_out(targets_N1_.size(0), kCostOfExp * columns.n,
            [&](Range some) { kernels().see(elem, args, some); });
}

at::Tensor Softmax::gradient(Columns columns, at::Tensor logits_NC, const at::Tensor& scale) const {
  logits_NC = logits_NC.contiguous();
  const Elem elem = elem_of(logits_NC);
  const SoftmaxArgs args{out(logits_NC),
                         in<std::int64_t>(targets_N1_),
                         out<float>(max_N1_),
                         out<float>(sum_N1_),
                         /*target_logit=*/nullptr,
                         columns.begin,
                         columns.n};
  const auto by = static_cast<float>(*in<double>(scale));
  share_out(targets_N1_.size(0), kCostOfExp * columns.n,
            [&](Range some) { kernels().softmax_backward(elem, args, by, some); });
  return logits_NC;
}

void Softmax::write_loss_sum(const at::Tensor& out_sum) const {
  const auto* target = in<std::int64_t>(targets_N1_);
  const auto *max = in<float>(max_N1_), *sum = in<float>(sum_N1_);
  const auto* target_logit = in<float>(target_logit_N1_);
  double loss = 0;
  for (std::int64_t i = 0; i < targets_N1_.size(0); ++i) {
    if (target[i] < 0) continue;
    loss += std::log(double{sum[i]}) + double{max[i]} - double{target_logit[i]};
  }
  *out<double>(out_sum) = loss;
}

}  // namespace sluice::model
