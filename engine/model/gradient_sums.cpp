#include "engine/model/gradient_sums.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace sluice::model {

at::Tensor GradientSums::gradient(shape::Role role) {
  add_part();
  Sum& of = sums_[role];
  if (!of.out.defined()) of.out = to_.gradient(role);
  of_part_ = &of;
  const auto options = of.out.options();
  part_ = at::empty(of.out.sizes(), of.out.dim() == 1 ? options.dtype(at::kFloat) : options);
  return part_;
}

void GradientSums::write() {
  add_part();
  for (auto& [role, of] : sums_) of.out.copy_(std::exchange(of.sum, {}));
}

void GradientSums::add_part() {
  if (of_part_ == nullptr) return;
  const at::Tensor part = std::exchange(part_, {});
  at::Tensor& sum = std::exchange(of_part_, nullptr)->sum;
  sum = sum.defined() ? sum.add_(part) : part.to(at::kFloat);
}

}  // namespace sluice::model
