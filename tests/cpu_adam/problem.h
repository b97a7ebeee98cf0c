/// Inputs for the tests of cpu_adam: every size of number, at any offset from a cache line.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cpu_adam/optimizer.h"

namespace sluice::cpu_adam {

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
inline std::vector<std::uint16_t> bits_of(std::span<const Bf16> values) {
  std::vector<std::uint16_t> bits;
  for (const Bf16 x : values) bits.push_back(x.bits);
  return bits;
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

/// A training state with a gradient in both types. The bf16 gradient is the fp32 one, rounded.
struct Problem {
  Problem(std::size_t count, std::size_t offset, unsigned seed)
      : master(count, offset),
        m(count, offset),
        v(count, offset),
        gradient32(count, offset),
        gradient16(count, offset),
        published32(count, offset),
        published16(count, offset) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      master.span()[i] = any_finite(random);
      m.span()[i] = any_finite(random);
      const float root = any_finite(random);
      v.span()[i] = root * root;
      gradient32.span()[i] = any_finite(random);
      gradient16.span()[i] = to_bf16(gradient32.span()[i]);
    }
  }

  State state() const { return {master.span(), m.span(), v.span()}; }
  bool guards_hold() const {
    return master.guards_hold() && m.guards_hold() && v.guards_hold() &&
           published32.guards_hold() && published16.guards_hold();
  }

  Placed<float> master, m, v, gradient32;
  Placed<Bf16> gradient16;
  Placed<float> published32;
  Placed<Bf16> published16;
};

inline Gradient gradient_of(const Problem& p, DType type) {
  if (type == DType::kF32) return std::span<const float>(p.gradient32.span());
  return std::span<const Bf16>(p.gradient16.span());
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
