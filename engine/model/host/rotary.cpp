#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>

#include "engine/model/host/shared_out.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

using namespace rows;

Rotary turns_of(const at::Tensor& positions_BS, const at::Tensor& frequencies, double factor) {
  const at::Tensor angle_NP = at::mul(positions_BS.view({-1, 1}).to(at::kFloat), frequencies);
  const auto of_tokens = [&](at::Tensor values_NP) {
    if (factor != 1) values_NP.mul_(factor);
    return values_NP.view({positions_BS.size(0), positions_BS.size(1), 1, -1});
  };
  return {of_tokens(at::cos(angle_NP)), of_tokens(at::sin(angle_NP))};
}

at::Tensor rotate(const at::Tensor& x_BShD, const Rotary& rotary, Turn turn) {
  const std::int64_t tokens = x_BShD.size(0) * x_BShD.size(1);
  const std::int64_t heads = x_BShD.size(2), pairs = x_BShD.size(3) / 2;
  // Columns of a wider matrix: no copy, the next token is further away.
  const at::Tensor x = x_BShD.reshape({tokens, heads * 2 * pairs});
  at::Tensor turned = at::empty(x_BShD.sizes(), x_BShD.options());
  const Elem elem = elem_of(x);
  const TurnArgs args{in(x),
                      in<float>(rotary.cos_BS1P),
                      in<float>(rotary.sin_BS1P),
                      out(turned),
                      heads,
                      pairs,
                      x.stride(0),
                      turn == Turn::kForward ? 1.0F : -1.0F};
  share_out(tokens, x.size(1), [&](Range some) { kernels().turn(elem, args, some); });
  return turned;
}

}  // namespace sluice::model
