#include <ATen/ops/empty_like.h>

#include "engine/base/error.h"
#include "engine/model/host/shared_out.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

using namespace rows;

namespace {

Bend bend_of(shape::Activation activation) {
  switch (activation) {
    case shape::Activation::kSilu:
      return Bend::kSilu;
    case shape::Activation::kGelu:
      return Bend::kGelu;
    case shape::Activation::kGeluTanh:
      return Bend::kGeluTanh;
  }
  throw Error(Errc::kLogic, "an activation of no kind");
}

MlpInputs dense(const MlpInputs& inputs) {
  const auto of = [](const at::Tensor& t) { return t.defined() ? t.contiguous() : t; };
  return {of(inputs.gate_NI), of(inputs.up_NI)};
}

}  // namespace

at::Tensor activate(shape::Activation activation, const MlpInputs& inputs) {
  const MlpInputs seen = dense(inputs);
  at::Tensor product = at::empty_like(seen.up_NI);
  const Elem elem = elem_of(product);
  const ActivateArgs args{bend_of(activation), in(seen.gate_NI), in(seen.up_NI), out(product)};
  share_out(product.numel(), kCostOfExp, [&](Range some) { kernels().activate(elem, args, some); });
  return product;
}

MlpInputs activate_backward(shape::Activation activation, MlpInputs&& inputs, at::Tensor dproduct) {
  const MlpInputs seen = dense(inputs);
  inputs = {};
  dproduct = dproduct.contiguous();
  at::Tensor dup;
  if (seen.gate_NI.defined()) dup = at::empty_like(seen.up_NI);
  const Elem elem = elem_of(dproduct);
  const ActivateBackwardArgs args{bend_of(activation), in(seen.gate_NI), in(seen.up_NI),
                                  out(dproduct), out(dup)};
  share_out(dproduct.numel(), kCostOfExp,
            [&](Range some) { kernels().activate_backward(elem, args, some); });
  if (!seen.gate_NI.defined()) return {{}, dproduct};
  return {dproduct, dup};
}

}  // namespace sluice::model
