/// The cross entropy of logits that are seen some columns at a time. As row_kernels.h: a body per
/// backend, nothing waits and nothing comes back to the host.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/model/pieces.h"

namespace sluice::model {

/// Some columns of the vocabulary.
using Columns = Piece;

/// A running log-sum-exp per token. Logits come as their product gave them.
class Softmax {
 public:
  /// Below zero: no target; such a token has no loss and no gradient.
  explicit Softmax(const at::Tensor& targets_BS);

  /// Sees these columns, and leaves them as they are.
  void add(Columns columns, const at::Tensor& logits_NC);
  /// Once all are seen: the gradient of the loss's sum, times `scale` (one fp64), by the logits of
  /// these columns, in whose place it may lie; not rounded to their dtype if it is exact to more.
  at::Tensor gradient(Columns columns, at::Tensor logits_NC, const at::Tensor& scale) const;

  /// In nats, over the targets: one fp64.
  void write_loss_sum(const at::Tensor& out) const;

 private:
  at::Tensor targets_N1_;
  at::Tensor max_N1_, sum_N1_, target_logit_N1_;  // fp32; sums are of exp(logit - max)
};

}  // namespace sluice::model
