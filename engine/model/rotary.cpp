#include "engine/model/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

namespace sluice::model {

// In fp32 throughout, as transformers does: at long positions the rounding of the angle shows.
Rotary make_rotary(const shape::Decoder& d, std::int64_t seq, at::Device device) {
  const auto fp32 = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor exponent =
      at::arange(0, d.head_dim, 2, fp32).div_(static_cast<double>(d.head_dim));
  const at::Tensor frequency_P = at::reciprocal(at::pow(d.rope_theta, exponent));
  const at::Tensor position_S11 = at::arange(seq, fp32).view({seq, 1, 1});
  const at::Tensor angle = at::mul(position_S11, frequency_P);
  return {at::cos(angle), at::sin(angle)};
}

at::Tensor rotate(const at::Tensor& x_BShD, const Rotary& rotary, Turn turn) {
  const std::int64_t pairs = x_BShD.size(3) / 2;
  const at::Tensor first = x_BShD.narrow(3, 0, pairs);
  const at::Tensor second = x_BShD.narrow(3, pairs, pairs);
  at::Tensor out = at::empty(x_BShD.sizes(), x_BShD.options());
  // The fp32 cosines make these products fp32 in bf16 too.
  at::Tensor out_first = at::mul(first, rotary.cos_S1P);
  const double sign = turn == Turn::kForward ? 1.0 : -1.0;
  out_first.sub_(at::mul(second, rotary.sin_S1P), sign);
  out.narrow(3, 0, pairs).copy_(out_first);
  out_first.reset();
  at::Tensor out_second = at::mul(second, rotary.cos_S1P);
  out_second.add_(at::mul(first, rotary.sin_S1P), sign);
  out.narrow(3, pairs, pairs).copy_(out_second);
  return out;
}

}  // namespace sluice::model
