#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>

#include "engine/model/row_kernels.h"

namespace sluice::model {

Rotary turns_of(const at::Tensor& positions_BS, const at::Tensor& frequencies, double factor) {
  const at::Tensor angle_NP = at::mul(positions_BS.view({-1, 1}).to(at::kFloat), frequencies);
  const auto of_tokens = [&](at::Tensor values_NP) {
    if (factor != 1) values_NP.mul_(factor);
    return values_NP.view({positions_BS.size(0), positions_BS.size(1), 1, -1});
  };
  return {of_tokens(at::cos(angle_NP)), of_tokens(at::sin(angle_NP))};
}

at::Tensor rotate(const at::Tensor& x_BShD, const Rotary& rotary, Turn turn) {
  const std::int64_t pairs = x_BShD.size(3) / 2;
  const at::Tensor first = x_BShD.narrow(3, 0, pairs);
  const at::Tensor second = x_BShD.narrow(3, pairs, pairs);
  at::Tensor out = at::empty(x_BShD.sizes(), x_BShD.options());
  // The fp32 cosines make these products fp32 in bf16 too.
  at::Tensor out_first = at::mul(first, rotary.cos_BS1P);
  const double sign = turn == Turn::kForward ? 1.0 : -1.0;
  out_first.sub_(at::mul(second, rotary.sin_BS1P), sign);
  out.narrow(3, 0, pairs).copy_(out_first);
  out_first.reset();
  at::Tensor out_second = at::mul(second, rotary.cos_BS1P);
  out_second.add_(at::mul(first, rotary.sin_BS1P), sign);
  out.narrow(3, pairs, pairs).copy_(out_second);
  return out;
}

}  // namespace sluice::model
