/// exp, and the activations made of it, on sixteen lanes; only rows_*.h include this.
#pragma once

#include "engine/model/host/lanes.h"

namespace sluice::model::rows {

template <class Arch>
struct Elementary {
  using L = Lanes<Arch>;

  template <class... C>
  SLUICE_LANES_INLINE static L polynomial(const L& x, float highest, C... lower) {
    L sum = L::all(highest);
    ((sum = sum * x + L::all(lower)), ...);
    return sum;
  }

  /// 2^n of whole numbers -126 <= n <= 127, given as floats.
  SLUICE_LANES_INLINE static L power_of_two(const L& n) {
    // 2^23 + 2^22 more: the whole number stands in the lowest bits.
    return L::made([&](int i) { return L::floats((L::bits(n.at[i] + 0x1.8p23F) + 127U) << 23); });
  }

  /// Within 2^-23 of its value, or half of the smallest number where that is more:
  /// exp(x) = 2^n exp(r), |r| <= ln(2) / 2. r is off by 2^-26, half its last place; the polynomial
  /// by 2^-28, its sum by 2^-25 on the way and 2^-24 at the end. The power of two comes in two
  /// factors: so overflow is inf, and underflow gradual.
  SLUICE_LANES_INLINE static L exp(const L& of) {
    const L x = L::clamped(of, -104.0F, 89.0F);
    const L magic = L::all(0x1.8p23F);
    const L n = (x * L::all(0x1.715476p0F) + magic) - magic;
    const L r = (x - n * L::all(0x1.62ep-1F)) - n * L::all(0x1.0bfbe8p-15F);
    const L tail = polynomial(r, 0x1.6a1a72p-10F, 0x1.123fc6p-7F, 0x1.555916p-5F, 0x1.55548ap-3F,
                              0x1.fffffcp-2F);
    const L value = L::all(1.0F) + (r + r * r * tail);
    const L half = (n * L::all(0.5F) + magic) - magic;
    return value * power_of_two(half) * power_of_two(n - half);
  }

  /// An activation and its derivative.
  struct Bent {
    L value, slope;
  };

  SLUICE_LANES_INLINE static Bent silu(const L& x) {
    const L one = L::all(1.0F);
    const L sigmoid = one / (one + exp(L::all(0.0F) - x));
    return {x * sigmoid, sigmoid * (one + x * (one - sigmoid))};
  }

  // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)).
  SLUICE_LANES_INLINE static Bent gelu_tanh(const L& x) {
    constexpr float kTwice = 0x1.988454p0F;  // 2 sqrt(2 / pi)
    constexpr float kCube = 0.044715F;
    const L one = L::all(1.0F), square = x * x;
    const L u = L::all(kTwice) * (x + L::all(kCube) * square * x);
    const L below = one / (one + exp(L::all(0.0F) - u));
    const L inner_slope = L::all(kTwice) * (one + L::all(3 * kCube) * square);
    return {x * below, below + x * below * (one - below) * inner_slope};
  }

  // The normal distribution beyond |x| is half of exp(-x^2/2) erfcx(|x| / sqrt(2)), and erfcx(z) is
  // t times a polynomial of t = 1 / (1 + 0.3 z), within 2^-25 of its value for z up to 10.5, where
  // exp has vanished.
  SLUICE_LANES_INLINE static Bent gelu(const L& x) {
    constexpr float kDensity = 0x1.988454p-2F;  // 1 / sqrt(2 pi)
    constexpr float kStep = 0x1.b27248p-3F;     // 0.3 / sqrt(2)
    const L one = L::all(1.0F), half = L::all(0.5F);
    const L bell = exp(L::all(-0.5F) * (x * x));
    const L t = one / (one + L::all(kStep) * L::magnitude(x));
    const L series =
        polynomial(t, -0x1.0953aap-3F, 0x1.f1626ep-2F, -0x1.0679a8p-1F, 0x1.18ab9cp-1F,
                   -0x1.85268cp-4F, 0x1.b884dep-3F, 0x1.2fb242p-3F, 0x1.5da432p-3F, 0x1.5a7ef2p-3F);
    const L beyond = half * bell * t * series;
    const L below = L::where_negative(x, beyond, one - beyond);
    return {x * below, below + x * (L::all(kDensity) * bell)};
  }

  SLUICE_LANES_INLINE static Bent bend(Bend kind, const L& x) {
    if (kind == Bend::kSilu) return silu(x);
    return kind == Bend::kGelu ? gelu(x) : gelu_tanh(x);
  }
};

}  // namespace sluice::model::rows
