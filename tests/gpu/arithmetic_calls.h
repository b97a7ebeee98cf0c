/// Calls of the optimizer's arithmetic, right ones and wrong ones, and the bytes that they work on:
/// for tests that compare one place where it is done with another.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/base/units.h"
#include "tests/cpu_adam/problem.h"

namespace sluice::gpu {

/// How the operands lie: `count` elements each, the first `offset` elements after a line of 64
/// bytes; the operand whose number is `moved` one element further.
struct Lie {
  std::size_t count = 0;
  std::size_t offset = 0;
  int moved = -1;
};

inline constexpr int kOperands = 13;

/// Every operand that a call may have, one behind the other from `base` on, with room between.
struct Operands {
  Operands(std::byte* base, const Lie& lie) {
    int number = 0;
    std::size_t at = 0;
    const auto next = [&](auto& span, std::size_t count) {
      using T = typename std::remove_reference_t<decltype(span)>::element_type;
      const std::size_t begin = at + (lie.offset + (number == lie.moved ? 1 : 0)) * sizeof(T);
      span = {reinterpret_cast<T*>(base + begin), count};
      at = round_up(begin + (count + 8) * sizeof(T), Bytes{64});
      ++number;
    };
    next(master, lie.count);
    next(m, lie.count);
    next(v, lie.count);
    next(gradient32, lie.count);
    next(gradient_bf16, lie.count);
    next(gradient_fp16, lie.count);
    next(other32, lie.count);
    next(other_bf16, lie.count);
    next(other_fp16, lie.count);
    next(copy32, lie.count);
    next(copy_bf16, lie.count);
    next(copy_fp16, lie.count);
    next(partials, div_ceil(lie.count, kGrainElems));
    size = at;
  }

  cpu_adam::State state() const { return {master, m, v}; }

  std::span<float> master, m, v, gradient32;
  std::span<Bf16> gradient_bf16;
  std::span<Fp16> gradient_fp16;
  std::span<float> other32;
  std::span<Bf16> other_bf16;
  std::span<Fp16> other_fp16;
  std::span<float> copy32;
  std::span<Bf16> copy_bf16;
  std::span<Fp16> copy_fp16;
  std::span<double> partials;
  Bytes size = 0;
};

/// The same bytes in ordinary memory.
class Sample {
 public:
  Sample(const Lie& lie, unsigned seed) : lie_(lie), lines_(Operands(nullptr, lie).size / 64) {
    std::memset(lines_.data(), 0x5a, size());
    std::mt19937 random(seed);
    const Operands all = operands();
    for (std::size_t i = 0; i < lie.count; ++i) {
      all.master[i] = any_float(random);
      all.m[i] = any_float(random);
      const float root = any_float(random);
      all.v[i] = root * root;
      all.gradient32[i] = any_float(random);
      all.gradient_bf16[i] = to_bf16(any_float(random));
      all.gradient_fp16[i] = to_fp16(any_float(random) * 1e4F);
      all.other32[i] = any_float(random);
      all.other_bf16[i] = to_bf16(any_float(random));
      all.other_fp16[i] = to_fp16(any_float(random) * 1e4F);
    }
  }

  std::byte* data() { return lines_.front().bytes; }
  Bytes size() const { return lines_.size() * sizeof(Line); }
  Operands operands() { return {data(), lie_}; }

  /// The bytes, every NaN the same one: which one it is, is the machine's.
  std::vector<std::byte> seen() const {
    Sample same = *this;
    const Operands all = same.operands();
    for (const auto span : {all.master, all.m, all.v, all.gradient32, all.copy32}) {
      for (float& x : span) {
        if (std::isnan(x)) x = std::numeric_limits<float>::quiet_NaN();
      }
    }
    for (Bf16& x : all.copy_bf16) {
      if (std::isnan(to_float(x))) x = to_bf16(std::numeric_limits<float>::quiet_NaN());
    }
    for (Fp16& x : all.copy_fp16) {
      if (std::isnan(to_float(x))) x = to_fp16(std::numeric_limits<float>::quiet_NaN());
    }
    for (double& x : all.partials) {
      if (std::isnan(x)) x = std::numeric_limits<double>::quiet_NaN();
    }
    return {same.data(), same.data() + same.size()};
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  static float any_float(std::mt19937& random) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    switch (random() % 64) {
      case 0:
        return kInf;
      case 1:
        return -kInf;
      case 2:
        return std::numeric_limits<float>::quiet_NaN();
      case 3:
        return std::numeric_limits<float>::max();
      case 4:
        return std::numeric_limits<float>::denorm_min();
      default:
        return cpu_adam::any_finite(random);
    }
  }

  Lie lie_;
  std::vector<Line> lines_;
};

/// Lengths around whole vectors and grains, at every alignment that matters to a load of 16 bytes.
inline std::vector<Lie> lies() {
  std::vector<Lie> lies;
  for (std::size_t count = 0; count <= 35; ++count) {
    for (const std::size_t offset : {0U, 1U, 2U}) lies.push_back({count, offset, -1});
  }
  for (const std::size_t near : {kGrainElems, 18 * kGrainElems}) {
    for (const std::size_t count : {near - 1, near, near + 1, near + 23}) lies.push_back({count});
  }
  for (int moved = 0; moved < kOperands; ++moved) lies.push_back({kGrainElems + 9, 0, moved});
  return lies;
}

template <class Arithmetic>
struct Call {
  std::string name;
  void (*make)(const Arithmetic&, const Operands&);
};

/// Every function with every type, in an order of its own: the same for each kind of arithmetic.
template <class Arithmetic>
std::vector<Call<Arithmetic>> calls() {
  using A = const Arithmetic&;
  using O = const Operands&;
  using F = std::span<const float>;
  using B = std::span<const Bf16>;
  using H = std::span<const Fp16>;
  using G = cpu_adam::Gradient;
  using cpu_adam::Mode;
  static const cpu_adam::Hyper w = cpu_adam::some_hyper(Mode::kAdamW);
  static const cpu_adam::Hyper l2 = cpu_adam::some_hyper(Mode::kAdam);
  return {
      {"fp32, no copy", [](A a, O o) { a.update(w, o.state(), F(o.gradient32), {}); }},
      {"fp32, fp32 copy", [](A a, O o) { a.update(l2, o.state(), F(o.gradient32), o.copy32); }},
      {"fp32, bf16 copy", [](A a, O o) { a.update(w, o.state(), F(o.gradient32), o.copy_bf16); }},
      {"fp32, fp16 copy", [](A a, O o) { a.update(w, o.state(), F(o.gradient32), o.copy_fp16); }},
      {"bf16, no copy", [](A a, O o) { a.update(l2, o.state(), B(o.gradient_bf16), {}); }},
      {"bf16, fp32 copy", [](A a, O o) { a.update(w, o.state(), B(o.gradient_bf16), o.copy32); }},
      {"bf16, bf16 copy",
       [](A a, O o) { a.update(w, o.state(), B(o.gradient_bf16), o.copy_bf16); }},
      {"bf16, fp16 copy",
       [](A a, O o) { a.update(w, o.state(), B(o.gradient_bf16), o.copy_fp16); }},
      {"fp16, no copy", [](A a, O o) { a.update(w, o.state(), H(o.gradient_fp16), {}); }},
      {"fp16, fp32 copy", [](A a, O o) { a.update(w, o.state(), H(o.gradient_fp16), o.copy32); }},
      {"fp16, bf16 copy",
       [](A a, O o) { a.update(l2, o.state(), H(o.gradient_fp16), o.copy_bf16); }},
      {"fp16, fp16 copy",
       [](A a, O o) { a.update(w, o.state(), H(o.gradient_fp16), o.copy_fp16); }},
      {"two fp32, bf16 copy",
       [](A a, O o) { a.update(w, o.state(), G(F(o.gradient32), F(o.other32)), o.copy_bf16); }},
      {"two bf16, bf16 copy",
       [](A a, O o) {
         a.update(w, o.state(), G(B(o.gradient_bf16), B(o.other_bf16)), o.copy_bf16);
       }},
      {"two fp16, fp16 copy",
       [](A a, O o) {
         a.update(l2, o.state(), G(H(o.gradient_fp16), H(o.other_fp16)), o.copy_fp16);
       }},
      {"norms of two fp32",
       [](A a, O o) { a.grain_norms(G(F(o.gradient32), F(o.other32)), o.partials); }},
      {"norms of two bf16",
       [](A a, O o) { a.grain_norms(G(B(o.gradient_bf16), B(o.other_bf16)), o.partials); }},
      {"norms of two fp16",
       [](A a, O o) { a.grain_norms(G(H(o.gradient_fp16), H(o.other_fp16)), o.partials); }},
      {"norms of fp32", [](A a, O o) { a.grain_norms(F(o.gradient32), o.partials); }},
      {"norms of bf16", [](A a, O o) { a.grain_norms(B(o.gradient_bf16), o.partials); }},
      {"norms of fp16", [](A a, O o) { a.grain_norms(H(o.gradient_fp16), o.partials); }},
      {"accumulate fp32", [](A a, O o) { a.accumulate(o.master, F(o.gradient32)); }},
      {"accumulate bf16", [](A a, O o) { a.accumulate(o.master, B(o.gradient_bf16)); }},
      {"accumulate fp16", [](A a, O o) { a.accumulate(o.master, H(o.gradient_fp16)); }},
      {"assign fp32", [](A a, O o) { a.assign(o.master, F(o.gradient32)); }},
      {"assign bf16", [](A a, O o) { a.assign(o.master, B(o.gradient_bf16)); }},
      {"assign fp16", [](A a, O o) { a.assign(o.master, H(o.gradient_fp16)); }},
      {"add fp32 and bf16", [](A a, O o) { a.add(o.copy32, F(o.gradient32), B(o.gradient_bf16)); }},
      {"add bf16 and fp16",
       [](A a, O o) { a.add(o.copy32, B(o.gradient_bf16), H(o.gradient_fp16)); }},
      {"add fp16 and fp32", [](A a, O o) { a.add(o.copy32, H(o.gradient_fp16), F(o.gradient32)); }},
      {"add in place", [](A a, O o) { a.add(o.master, F(o.master), F(o.master)); }},
  };
}

/// Calls that make no sense; of at least one element.
template <class Arithmetic>
std::vector<Call<Arithmetic>> wrong_calls() {
  using A = const Arithmetic&;
  using O = const Operands&;
  using F = std::span<const float>;
  using B = std::span<const Bf16>;
  using H = std::span<const Fp16>;
  using cpu_adam::Hyper;
  return {
      {"m is short",
       [](A a, O o) {
         a.update({}, {o.master, o.m.subspan(1), o.v}, F(o.gradient32), {});
       }},
      {"v is short",
       [](A a, O o) {
         a.update({}, {o.master, o.m, o.v.subspan(1)}, F(o.gradient32), {});
       }},
      {"the gradient is short",
       [](A a, O o) { a.update({}, o.state(), H(o.gradient_fp16.subspan(1)), {}); }},
      {"the copy is short",
       [](A a, O o) { a.update({}, o.state(), F(o.gradient32), o.copy_bf16.subspan(1)); }},
      {"no eps", [](A a, O o) { a.update(Hyper{.eps = 0}, o.state(), F(o.gradient32), {}); }},
      {"a beta of 1",
       [](A a, O o) { a.update(Hyper{.beta2 = 1}, o.state(), F(o.gradient32), {}); }},
      {"update 0",
       [](A a, O o) { a.update(Hyper{.bias_correction1 = 0}, o.state(), F(o.gradient32), {}); }},
      {"an infinite clip factor",
       [](A a, O o) {
         a.update(Hyper{.clip = std::numeric_limits<float>::infinity()}, o.state(), F(o.gradient32),
                  {});
       }},
      {"a term is short",
       [](A a, O o) {
         a.update({}, o.state(), cpu_adam::Gradient(F(o.gradient32), F(o.other32.subspan(1))), {});
       }},
      {"terms of two types",
       [](A a, O o) {
         a.grain_norms(cpu_adam::Gradient(F(o.gradient32), B(o.other_bf16)), o.partials);
       }},
      {"partials are missing", [](A a, O o) { a.grain_norms(F(o.gradient32), {}); }},
      {"a sum is short", [](A a, O o) { a.accumulate(o.master.subspan(1), F(o.gradient32)); }},
      {"a first sum is short", [](A a, O o) { a.assign(o.master.subspan(1), B(o.gradient_bf16)); }},
      {"the first term is short",
       [](A a, O o) { a.add(o.copy32, F(o.gradient32.subspan(1)), F(o.gradient32)); }},
      {"the second term is short",
       [](A a, O o) { a.add(o.copy32, F(o.gradient32), F(o.gradient32.subspan(1))); }},
  };
}

}  // namespace sluice::gpu
