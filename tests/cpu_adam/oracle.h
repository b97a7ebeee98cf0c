/// Adam and AdamW once more, one element at a time, from the papers (1412.6980 algorithm 1,
/// 1711.05101 algorithm 2), with no code shared with the room.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "cpu_adam/optimizer.h"

namespace sluice::cpu_adam::oracle {

struct Element {
  float master;
  float m;
  float v;
};

/// In the order of operations that optimizer.h promises.
inline Element update(const Hyper& h, Element e, float gradient) {
  const bool adamw = h.mode == Mode::kAdamW;
  const float decay = adamw ? static_cast<float>(double{h.lr} * double{h.weight_decay}) : 0.0F;
  const float l2 = adamw ? 0.0F : h.weight_decay;
  const float step = static_cast<float>(double{h.lr} / double{h.bias_correction1});
  const float scale2 = static_cast<float>(1.0 / std::sqrt(double{h.bias_correction2}));
  const float c1 = static_cast<float>(1.0 - double{h.beta1});
  const float c2 = static_cast<float>(1.0 - double{h.beta2});

  const float clipped = gradient * h.clip;
  const float g = std::fma(l2, e.master, clipped);
  const float old_m = h.beta1 * e.m;
  e.m = std::fma(c1, g, old_m);
  const float old_v = h.beta2 * e.v;
  const float c2_g = c2 * g;
  e.v = std::fma(c2_g, g, old_v);
  const float root = std::sqrt(e.v);
  const float ratio = e.m / std::fma(root, scale2, h.eps);
  const float decayed = decay * e.master;
  e.master = e.master - std::fma(step, ratio, decayed);
  return e;
}

/// The papers' formulas as they stand there, in double: right to rounding, not to the bit.
struct Exact {
  double master;
  double m = 0;
  double v = 0;

  void update(const Hyper& h, double gradient, int t) {
    double g = gradient * double{h.clip};
    if (h.mode == Mode::kAdam) g += double{h.weight_decay} * master;
    m = double{h.beta1} * m + (1.0 - double{h.beta1}) * g;
    v = double{h.beta2} * v + (1.0 - double{h.beta2}) * g * g;
    const double m_hat = m / (1.0 - std::pow(double{h.beta1}, t));
    const double v_hat = v / (1.0 - std::pow(double{h.beta2}, t));
    double change = m_hat / (std::sqrt(v_hat) + double{h.eps});
    if (h.mode == Mode::kAdamW) change += double{h.weight_decay} * master;
    master -= double{h.lr} * change;
  }
};

/// How far floats may be from Exact after the same updates: running error analysis (Higham,
/// Accuracy and Stability of Numerical Algorithms, 3.3). Each operation of [Note: Adam arithmetic]
/// passes on the errors of what it takes, times its derivative, and adds a unit roundoff of its
/// result. c1, c2 and decay were rounded once; step by the bias correction too, and scale2 by half
/// of that one. To first order: kRest covers products of errors, each below a thousandth, and those
/// of double.
struct Bound {
  static constexpr double kUnit = 0x1p-24, kRest = 1.01;
  double master = 0, m = 0, v = 0;

  /// Exact values before and after update t.
  void update(const Hyper& h, const Exact& before, const Exact& after, double gradient, int t) {
    const bool adamw = h.mode == Mode::kAdamW;
    const double l2 = adamw ? 0 : h.weight_decay;
    const double decay = adamw ? double{h.lr} * double{h.weight_decay} : 0;
    const double beta1 = h.beta1, beta2 = h.beta2, c1 = 1 - beta1, c2 = 1 - beta2;
    const double clipped = gradient * h.clip, g = std::abs(clipped + l2 * before.master);
    const double of_g = l2 * master + kUnit * (std::abs(clipped) + g);
    m = beta1 * m + c1 * of_g + kUnit * (beta1 * std::abs(before.m) + c1 * g + std::abs(after.m));
    v = beta2 * v + 2 * c2 * g * of_g + kUnit * (beta2 * before.v + 2 * c2 * g * g + after.v);
    const double root = std::sqrt(after.v / (1 - std::pow(beta2, t))), divisor = root + h.eps;
    const double of_divisor = root * (v / (2 * after.v) + 2.5 * kUnit) + kUnit * divisor;
    const double ratio = std::abs(after.m) / divisor;
    const double of_ratio = m / divisor + ratio * (of_divisor / divisor + kUnit);
    const double step = h.lr / (1 - std::pow(beta1, t));
    master += step * (of_ratio + 2 * kUnit * ratio) +
              decay * (master + 2 * kUnit * std::abs(before.master)) +
              kUnit * (std::abs(after.master - before.master) + std::abs(after.master));
  }
};

/// The sum of squares of one grain: 16 lanes, then a tree.
inline double sum_squares(std::span<const float> grain) {
  double lanes[16] = {};
  for (std::size_t i = 0; i < grain.size(); ++i) {
    lanes[i % 16] += double{grain[i]} * double{grain[i]};
  }
  for (std::size_t half : {8U, 4U, 2U, 1U}) {
    for (std::size_t k = 0; k < half; ++k) lanes[k] = lanes[k] + lanes[k + half];
  }
  return lanes[0];
}

}  // namespace sluice::cpu_adam::oracle
