/// What stands between the products of an MLP.
#pragma once

#include <ATen/ops/empty_like.h>

#include <cmath>
#include <numbers>

#include "engine/model/fused/types.h"
#include "engine/model/row_kernels.h"

namespace sluice::model::fused {

/// An activation and its derivative.
struct Bend {
  float value, slope;
};

SLUICE_DEVICE inline Bend silu(float x) {
  const float sigmoid = 1.0F / (1.0F + expf(-x));
  return {x * sigmoid, sigmoid * (1.0F + x * (1.0F - sigmoid))};
}

SLUICE_DEVICE inline Bend gelu(float x) {
  constexpr auto kRootHalf = static_cast<float>(1 / std::numbers::sqrt2);
  constexpr auto kDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  const float below = 0.5F * (1.0F + erff(x * kRootHalf));
  return {x * below, below + x * kDensity * expf(-0.5F * x * x)};
}

SLUICE_DEVICE inline Bend gelu_tanh(float x) {
  constexpr auto kScale = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  constexpr float kCube = 0.044715F;
  const float t = tanhf(kScale * (x + kCube * x * x * x));
  const float inner_slope = kScale * (1.0F + 3.0F * kCube * x * x);
  const float below = 0.5F * (1.0F + t);
  return {x * below, below + 0.5F * x * (1.0F - t * t) * inner_slope};
}

SLUICE_DEVICE inline Bend bend(shape::Activation activation, float x) {
  if (activation == shape::Activation::kSilu) return silu(x);
  return activation == shape::Activation::kGelu ? gelu(x) : gelu_tanh(x);
}

template <class T, int kPack>
struct Activate {
  shape::Activation activation;
  const T *gate, *up;  // no gate: up is what is activated
  T* product;

  SLUICE_DEVICE void operator()(std::int64_t pack) const {
    const std::int64_t i = pack * kPack;
    const Floats<kPack> u = load<kPack>(up + i);
    const Floats<kPack> x = gate == nullptr ? u : load<kPack>(gate + i);
    Floats<kPack> y;
    for (int k = 0; k < kPack; ++k) {
      y.at[k] = bend(activation, x.at[k]).value;
      if (gate != nullptr) y.at[k] *= u.at[k];
    }
    store<kPack>(product + i, y);
  }
};

template <class Launch>
at::Tensor activate(const Launch& launch, shape::Activation activation, const MlpInputs& inputs) {
  const at::Tensor up = inputs.up_NI.contiguous();
  const at::Tensor gate = inputs.gate_NI.defined() ? inputs.gate_NI.contiguous() : inputs.gate_NI;
  at::Tensor product = at::empty_like(up);
  const auto run = [&]<class T, int kPack>() {
    launch.each(up.numel() / kPack,
                Activate<T, kPack>{activation, in<T>(gate), in<T>(up), out<T>(product)});
  };
  with_type_and_pack(up.scalar_type(), run, up.size(1));  // rows may be some of a matrix's
  return product;
}

/// In place: the gradient of the product becomes that of what was activated.
template <class T, int kPack>
struct ActivateBackward {
  shape::Activation activation;
  const T *gate, *up;
  T *dproduct, *dup;

  SLUICE_DEVICE void operator()(std::int64_t pack) const {
    const std::int64_t i = pack * kPack;
    const Floats<kPack> u = load<kPack>(up + i);
    const Floats<kPack> x = gate == nullptr ? u : load<kPack>(gate + i);
    Floats<kPack> d = load<kPack>(dproduct + i), by_up;
    for (int k = 0; k < kPack; ++k) {
      const Bend b = bend(activation, x.at[k]);
      by_up.at[k] = d.at[k] * b.value;
      d.at[k] *= gate == nullptr ? b.slope : u.at[k] * b.slope;
    }
    if (gate != nullptr) store<kPack>(dup + i, by_up);
    store<kPack>(dproduct + i, d);
  }
};

template <class Launch>
MlpInputs activate_backward(const Launch& launch, shape::Activation activation, MlpInputs&& inputs,
                            at::Tensor dproduct) {
  const MlpInputs seen{inputs.gate_NI.defined() ? inputs.gate_NI.contiguous() : at::Tensor(),
                       inputs.up_NI.contiguous()};
  inputs = {};
  dproduct = dproduct.contiguous();
  at::Tensor dup;
  if (seen.gate_NI.defined()) dup = at::empty_like(seen.up_NI);
  const auto run = [&]<class T, int kPack>() {
    launch.each(dproduct.numel() / kPack,
                ActivateBackward<T, kPack>{activation, in<T>(seen.gate_NI), in<T>(seen.up_NI),
                                           out<T>(dproduct), out<T>(dup)});
  };
  with_type_and_pack(dproduct.scalar_type(), run, dproduct.size(1));
  if (!seen.gate_NI.defined()) return {{}, dproduct};
  return {dproduct, dup};
}

}  // namespace sluice::model::fused
