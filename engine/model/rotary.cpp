#include "engine/model/rotary.h"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice::model {
namespace {

using shape::Rope;
using shape::RopeScaling;

/// Of theta, to the power of each pair's share of the head. In fp32 throughout, and in the order in
/// which transformers calculates: at long positions the rounding of the angle shows.
at::Tensor wavelengths(double theta, std::int64_t head_dim, at::TensorOptions fp32) {
  const at::Tensor exponent_P =
      at::arange(0, head_dim, 2, fp32).div_(static_cast<double>(head_dim));
  return at::pow(theta, exponent_P);
}

/// Longer sequences than the model has positions raise theta ("NTK-aware").
double dynamic_theta(const shape::Decoder& d, std::int64_t seq) {
  const auto positions = static_cast<double>(d.max_positions);
  const double reach = std::max(static_cast<double>(seq), positions) / positions;
  const auto dim = static_cast<double>(d.head_dim);
  return d.rope.theta * std::pow(d.rope.factor * reach - (d.rope.factor - 1), dim / (dim - 2));
}

/// Waves that turn often over the original positions stay, those that do not turn once are
/// stretched, and between the two it is interpolated.
at::Tensor llama3(const Rope& rope, const at::Tensor& frequency_P) {
  const auto positions = static_cast<double>(rope.original_positions);
  const at::Tensor wave = at::reciprocal(frequency_P).mul_(2 * std::numbers::pi);
  const at::Tensor is_long = at::gt(wave, positions / rope.low_freq_factor);
  const at::Tensor is_short = at::lt(wave, positions / rope.high_freq_factor);
  const at::Tensor ends = at::where(is_long, at::div(frequency_P, rope.factor), frequency_P);
  const at::Tensor smooth = at::reciprocal(wave)
                                .mul_(positions)
                                .sub_(rope.low_freq_factor)
                                .div_(rope.high_freq_factor - rope.low_freq_factor);
  const at::Tensor between =
      at::add(at::mul(at::rsub(smooth, 1.0), ends).div_(rope.factor), at::mul(smooth, ends));
  return at::where(at::logical_or(is_long, is_short), ends, between);
}

/// The pair that turns so often over the original positions.
double pair_of_turns(const shape::Decoder& d, double turns) {
  const auto positions = static_cast<double>(d.rope.original_positions);
  return static_cast<double>(d.head_dim) * std::log(positions / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(d.rope.theta));
}

/// As llama3(), with a ramp over the pairs; YaRN, arXiv:2309.00071.
at::Tensor yarn(const shape::Decoder& d, const at::Tensor& wave_P) {
  double low = pair_of_turns(d, d.rope.beta_fast);
  double high = pair_of_turns(d, d.rope.beta_slow);
  if (d.rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(d.head_dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp =
      at::arange(0, d.head_dim / 2, wave_P.options()).sub_(low).div_(high - low).clamp_(0, 1);
  const at::Tensor kept = at::rsub(ramp, 1.0);
  const at::Tensor stretched = at::reciprocal(at::mul(wave_P, d.rope.factor));
  return at::mul(stretched, at::rsub(kept, 1.0)).add_(at::mul(at::reciprocal(wave_P), kept));
}

at::Tensor frequencies(const shape::Decoder& d, std::int64_t seq, at::TensorOptions fp32) {
  const Rope& rope = d.rope;
  const double theta = rope.scaling == RopeScaling::kDynamic ? dynamic_theta(d, seq) : rope.theta;
  const at::Tensor wave_P = wavelengths(theta, d.head_dim, fp32);
  switch (rope.scaling) {
    case RopeScaling::kLinear:
      return at::reciprocal(wave_P).div_(rope.factor);
    case RopeScaling::kLlama3:
      return llama3(rope, at::reciprocal(wave_P));
    case RopeScaling::kYarn:
      return yarn(d, wave_P);
    case RopeScaling::kNone:
    case RopeScaling::kDynamic:
      break;
  }
  return at::reciprocal(wave_P);
}

/// Of each token, [N, P]; or [P] where all have the same.
at::Tensor token_frequencies(const shape::Decoder& d, const Places& places,
                             at::TensorOptions fp32) {
  if (d.rope.scaling != RopeScaling::kDynamic) return frequencies(d, 0, fp32);
  const std::int64_t seq = places.positions_BS.size(1);
  const at::Tensor of_tokens = at::empty({places.positions_BS.numel(), d.head_dim / 2}, fp32);
  for (const Document& document : places.documents.all) {
    of_tokens.narrow(0, document.row * seq + document.begin, document.tokens)
        .copy_(frequencies(d, document.tokens, fp32));
  }
  return of_tokens;
}

}  // namespace

// What is taken on the way has sizes that follow from the batch's shape alone, wherever documents
// begin: the workspace was measured for one way of that.
Rotary make_rotary(const shape::Decoder& d, const Places& places) {
  const auto fp32 = at::TensorOptions(at::kFloat).device(places.positions_BS.device());
  return turns_of(places.positions_BS, token_frequencies(d, places, fp32), d.rope.attention_factor);
}

}  // namespace sluice::model
