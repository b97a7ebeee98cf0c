/// Inputs for the tests of cpu_adam: every size of number, at any offset from a cache line.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "cpu_adam/optimizer.h"

namespace sluice::cpu_adam {

inline Optimizer optimizer(Isa isa, unsigned threads = 1, Stores stores = Stores::kCached) {
  return Optimizer({.threads = threads, .isa = isa, .stores = stores});
}

/// An array that begins `offset` elements after a 4 KiB page does, with a guard on both sides.
template <class T>
class Placed {
 public:
  Placed(std::size_t count, std::size_t offset)
      : bytes_((count + offset + 2 * kGuard) * sizeof(T)),
        memory_(static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{4096}))),
        count_(count),
        begin_(kGuard + offset) {
    std::memset(memory_.get(), 0x5a, bytes_);
    for (T& x : span()) x = T{};
  }
  Placed(const Placed& other) : Placed(other.count_, other.begin_ - kGuard) {
    std::memcpy(memory_.get(), other.memory_.get(), bytes_);
  }
  Placed& operator=(const Placed&) = delete;

  std::span<T> span() const { return {reinterpret_cast<T*>(memory_.get()) + begin_, count_}; }

  bool guards_hold() const {
    const std::size_t first = begin_ * sizeof(T);
    const std::size_t last = first + count_ * sizeof(T);
    for (std::size_t i = 0; i < bytes_; ++i) {
      if ((i < first || i >= last) && memory_[i] != std::byte{0x5a}) return false;
    }
    return true;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{4096}); }
  };
  static constexpr std::size_t kGuard = 64;  // elements: keeps every alignment up to 64 bytes
  std::size_t bytes_;
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t count_;
  std::size_t begin_;
};

/// Bits, so that -0 differs from 0 and a NaN equals itself.
inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float x : values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}
template <class Half>
std::vector<std::uint16_t> bits_of_halves(std::span<const Half> values) {
  std::vector<std::uint16_t> bits;
  for (const Half x : values) bits.push_back(x.bits);
  return bits;
}
inline std::vector<std::uint16_t> bits_of(std::span<const Bf16> values) {
  return bits_of_halves(values);
}
inline std::vector<std::uint16_t> bits_of(std::span<const Fp16> values) {
  return bits_of_halves(values);
}

/// Mostly of the size gradients have; also zeros, subnormals and numbers whose squares overflow.
inline float any_finite(std::mt19937& random) {
  std::normal_distribution<float> normal;
  switch (random() % 16) {
    case 0:
      return 0.0F;
    case 1:
      return -0.0F;
    case 2:
      return normal(random) * 1e-39F;
    case 3:
      return normal(random) * 1e-23F;
    case 4:
      return normal(random) * 1e18F;
    default:
      return normal(random) * 1e-2F;
  }
}

/// A training state with two gradients in every type: the fp32 one, rounded. The fp16 one is finite
/// too.
struct Problem {
  Problem(std::size_t count, std::size_t offset, unsigned seed)
      : master(count, offset),
        m(count, offset),
        v(count, offset),
        gradient32(count, offset),
        gradient_bf16(count, offset),
        gradient_fp16(count, offset),
        other32(count, offset),
        other_bf16(count, offset),
        other_fp16(count, offset),
        published32(count, offset),
        published_bf16(count, offset),
        published_fp16(count, offset) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      master.span()[i] = any_finite(random);
      m.span()[i] = any_finite(random);
      const float root = any_finite(random);
      v.span()[i] = root * root;
      gradient32.span()[i] = any_finite(random);
      gradient_bf16.span()[i] = to_bf16(gradient32.span()[i]);
      gradient_fp16.span()[i] = to_fp16(std::clamp(gradient32.span()[i], -65504.0F, 65504.0F));
      other32.span()[i] = any_finite(random);
      other_bf16.span()[i] = to_bf16(other32.span()[i]);
      other_fp16.span()[i] = to_fp16(std::clamp(other32.span()[i], -65504.0F, 65504.0F));
    }
  }

  State state() const { return {master.span(), m.span(), v.span()}; }
  bool guards_hold() const {
    return master.guards_hold() && m.guards_hold() && v.guards_hold() &&
           published32.guards_hold() && published_bf16.guards_hold() &&
           published_fp16.guards_hold();
  }

  Placed<float> master, m, v, gradient32;
  Placed<Bf16> gradient_bf16;
  Placed<Fp16> gradient_fp16;
  Placed<float> other32;
  Placed<Bf16> other_bf16;
  Placed<Fp16> other_fp16;
  Placed<float> published32;
  Placed<Bf16> published_bf16;
  Placed<Fp16> published_fp16;
};

inline constexpr std::array kTypes = {DType::kF32, DType::kBf16, DType::kF16};

/// That of the three which has this type.
inline Values of_type(DType type, const Placed<float>& f32, const Placed<Bf16>& bf16,
                      const Placed<Fp16>& fp16) {
  switch (type) {
    case DType::kF32:
      return std::span<const float>(f32.span());
    case DType::kBf16:
      return std::span<const Bf16>(bf16.span());
    case DType::kF16:
      return std::span<const Fp16>(fp16.span());
  }
  return {};
}

inline Values values_of(const Problem& p, DType type) {
  return of_type(type, p.gradient32, p.gradient_bf16, p.gradient_fp16);
}

inline Values others_of(const Problem& p, DType type) {
  return of_type(type, p.other32, p.other_bf16, p.other_fp16);
}

/// The first gradient of that type, or both as the terms of one.
inline Gradient gradient_of(const Problem& p, DType type, int terms = 1) {
  if (terms == 1) return values_of(p, type);
  return {values_of(p, type), others_of(p, type)};
}

/// Each element as a float.
inline std::vector<float> wide(const Values& of) {
  return std::visit(
      [](const auto& values) {
        std::vector<float> wide;
        for (const auto x : values) {
          if constexpr (std::is_same_v<decltype(x), const float>) {
            wide.push_back(x);
          } else {
            wide.push_back(to_float(x));
          }
        }
        return wide;
      },
      of);
}

/// In fp64 and rounded to fp32, which is as rounded once: 53 bits are no fewer than 2 * 24 + 2.
inline float sum_of(float a, float b) {
  return static_cast<float>(double{a} + double{b});
}

/// The gradient, each element as a float: its sum where there are two terms.
inline std::vector<float> wide_gradient(const Problem& p, DType type, int terms = 1) {
  std::vector<float> sums = wide(values_of(p, type));
  if (terms == 1) return sums;
  const std::vector<float> others = wide(others_of(p, type));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sum_of(sums[i], others[i]);
  return sums;
}

inline Hyper some_hyper(Mode mode) {
  return {.mode = mode,
          .lr = 3e-4F,
          .beta1 = 0.9F,
          .beta2 = 0.95F,
          .eps = 1e-8F,
          .weight_decay = 0.1F,
          .bias_correction1 = bias_correction(0.9F, 3),
          .bias_correction2 = bias_correction(0.95F, 3),
          .clip = 0.73F};
}

/// A gtest parameter's name.
inline std::string isa_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(name_of(info.param));
}

}  // namespace sluice::cpu_adam
