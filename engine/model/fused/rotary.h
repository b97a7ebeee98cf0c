/// Tables of turns, and turning by them.
#pragma once

#include <ATen/ops/empty.h>

#include <cmath>

#include "engine/model/fused/types.h"
#include "engine/model/row_kernels.h"

namespace sluice::model::fused {

struct TurnOf {
  const std::int64_t* position;
  const float* frequency;
  float *cosine, *sine;
  std::int64_t pairs;
  std::int64_t frequencies_step;  // from token to token; 0 where all have the same
  float factor;

  SLUICE_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t token = i / pairs, pair = i % pairs;
    const float angle =
        static_cast<float>(position[token]) * frequency[token * frequencies_step + pair];
    cosine[i] = cosf(angle) * factor;
    sine[i] = sinf(angle) * factor;
  }
};

template <class Launch>
Rotary turns_of(const Launch& launch, const at::Tensor& positions_BS, const at::Tensor& frequencies,
                double factor) {
  const at::Tensor positions = positions_BS.contiguous(), frequency = frequencies.contiguous();
  const std::int64_t pairs = frequency.size(-1);
  const auto table = [&] {
    return at::empty({positions.size(0), positions.size(1), 1, pairs}, frequency.options());
  };
  Rotary rotary{table(), table()};
  launch.each(positions.numel() * pairs,
              TurnOf{in<std::int64_t>(positions), in<float>(frequency), out<float>(rotary.cos_BS1P),
                     out<float>(rotary.sin_BS1P), pairs, frequency.dim() == 1 ? 0 : pairs,
                     static_cast<float>(factor)});
  return rotary;
}

template <class T, int kPack>
struct TurnPairs {
  const T* x;
  const float *cosine, *sine;
  T* out;
  std::int64_t heads, pairs, token_step;
  float sign;

  /// A pack of pairs of one head of one token.
  SLUICE_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t packs = pairs / kPack;
    const std::int64_t pair = i % packs * kPack, head = i / packs % heads,
                       token = i / packs / heads;
    const T* from = x + token * token_step + head * 2 * pairs + pair;
    T* to = out + (token * heads + head) * 2 * pairs + pair;
    const Floats<kPack> a = load<kPack>(from), b = load<kPack>(from + pairs);
    const Floats<kPack> c = load<kPack>(cosine + token * pairs + pair);
    const Floats<kPack> s = load<kPack>(sine + token * pairs + pair);
    Floats<kPack> first, second;
    for (int k = 0; k < kPack; ++k) {
      first.at[k] = a.at[k] * c.at[k] - sign * (b.at[k] * s.at[k]);
      second.at[k] = b.at[k] * c.at[k] + sign * (a.at[k] * s.at[k]);
    }
    store<kPack>(to, first);
    store<kPack>(to + pairs, second);
  }
};

template <class Launch>
at::Tensor rotate(const Launch& launch, const at::Tensor& x_BShD, const Rotary& rotary, Turn turn) {
  const std::int64_t tokens = x_BShD.size(0) * x_BShD.size(1);
  const std::int64_t heads = x_BShD.size(2), pairs = x_BShD.size(3) / 2;
  // Columns of a wider matrix: no copy, the next token is further away.
  const at::Tensor x = x_BShD.reshape({tokens, heads * 2 * pairs});
  at::Tensor turned = at::empty(x_BShD.sizes(), x_BShD.options());
  const auto run = [&]<class T, int kPack>() {
    launch.each(tokens * heads * (pairs / kPack),
                TurnPairs<T, kPack>{in<T>(x), in<float>(rotary.cos_BS1P),
                                    in<float>(rotary.sin_BS1P), out<T>(turned), heads, pairs,
                                    x.stride(0), turn == Turn::kForward ? 1.0F : -1.0F});
  };
  with_type_and_pack(x.scalar_type(), run, pairs, x.stride(0), x.storage_offset());
  return turned;
}

}  // namespace sluice::model::fused
