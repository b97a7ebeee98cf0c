/// AdamW and Adam on spans, in one fused pass over memory: clip factor, weight decay, moments,
/// master weights, and the rounded copy that computes.
///
/// [Note: Adam arithmetic] One update of one element, every operation IEEE binary32, rounded to
/// nearest even, subnormals kept. fma(a, b, c) = a * b + c rounded once. This is the contract:
/// every instruction set, thread count, cut of the spans and device gives these bits.
///
///   once per call, in double, each rounded to float once:
///     step   = lr / bias_correction1        scale2 = 1 / sqrt(bias_correction2)
///     c1     = 1 - beta1                    c2     = 1 - beta2
///     decay  = lr * weight_decay (kAdamW; 0 in kAdam)
///     l2     = weight_decay      (kAdam; 0 in kAdamW)
///   per element (gradient: the element of its one term, or the sum of two, rounded once):
///     g      = fma(l2, master, gradient * clip)
///     m      = fma(c1, g, beta1 * m)
///     v      = fma(c2 * g, g, beta2 * v)
///     ratio  = m / fma(sqrt(v), scale2, eps)
///     master = master - fma(step, ratio, decay * master)        (the old master on the right)
///     published = master, or its bf16 or fp16 rounded to nearest even
///
/// Finite inputs give the same bits everywhere. Where something is NaN the result is NaN
/// everywhere, but its sign and payload are the machine's.
///
/// Paper   AdamW, arXiv:1711.05101, algorithm 2, with one schedule multiplier folded into lr (both
///         the step and the decay follow it); both bias corrections are folded into step and scale2
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "cpu_adam/isa.h"
#include "cpu_adam/options.h"
#include "engine/base/dtype.h"

namespace sluice::cpu_adam {

enum class Mode : std::uint8_t {
  kAdamW,  ///< weight decay beside the gradient's step
  kAdam    ///< weight decay added to the gradient (L2)
};

/// The constants of one step. The host computes them in double and rounds them once.
struct Hyper {
  Mode mode = Mode::kAdamW;
  float lr = 0;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;  ///< above 0: padding has no gradient
  float weight_decay = 0;
  float bias_correction1 = 1;  ///< 1 - beta1^t; see bias_correction()
  float bias_correction2 = 1;
  float clip = 1;  ///< factor on the gradient
};

/// 1 - beta^t, t >= 1, by repeated squaring in double: the same bits whatever the C library.
float bias_correction(float beta, std::uint64_t t);

/// Equal lengths, no overlap.
struct State {
  std::span<float> master;
  std::span<float> m;
  std::span<float> v;
};

/// [Note: Split masters] State that leaves out what its bf16 weights tell: a master is its weight,
/// the master rounded to nearest even, and its own lower half, 10 bytes an element in place of 12.
///
///   master = weight * 2^16 + low + mark * 2^16     on bits; low has a sign
///
/// A lower half of more than 0x8000 was rounded up, so its weight is one more than the upper half:
/// low is negative there, and nothing is missing. At 0x8000 the master lies between two weights,
/// and its own may be either: where the mark is set, the one nearer to zero. The mark is the sign
/// of v, which as a sum of squares has none of its own (a NaN's is the machine's in any case; and a
/// master that is NaN, which is never rounded up, has the mark wherever low is negative).
///
/// Equal lengths, no overlap. `weights` are read, and may be those that an update publishes.
struct SplitState {
  std::span<std::uint16_t> low;
  std::span<const Bf16> weights;
  std::span<float> m;
  std::span<float> v;  ///< marked
};

/// Numbers of a type that gradients have.
using Values = std::variant<std::span<const float>, std::span<const Bf16>, std::span<const Fp16>>;

/// A gradient, or its two terms, of one type and length: each element is their sum, rounded to fp32
/// once. Nobody has to write that sum down.
struct Gradient {
  Gradient(Values all) : values(all) {}
  template <class T>
  Gradient(std::span<const T> all) : values(all) {}
  Gradient(Values one, Values other) : values(one), more(other) {}

  Values values;
  std::optional<Values> more;
};

/// Weights for compute, or nothing.
using Published = std::variant<std::monostate, std::span<float>, std::span<Bf16>, std::span<Fp16>>;

/// Spans may have any length and any natural alignment. Streaming stores need master, m, v and the
/// published copy on 64-byte lines, and quietly become cached ones elsewhere.
///
/// Owns    its threads (one of them is the caller), no memory
/// Thread  any, several at once; calls do not return before their work is done
/// Throws  kConfig for options this machine cannot have; kLogic for spans of unequal length or
///         constants that make no sense, before anything is written
class Optimizer {
 public:
  /// With `stores: auto` a probe runs first, unless the instruction set has no streaming stores:
  /// some 50 ms, and twice the last cache, up to 256 MiB, for that long.
  explicit Optimizer(const Options& options);
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  /// One step, as the note says.
  void update(const Hyper& hyper, State state, Gradient gradient, Published published) const;
  /// The same bits; the weights go with the state, so they are always published.
  void update(const Hyper& hyper, SplitState state, Gradient gradient,
              std::span<Bf16> published) const;
  /// All of a state, or, where m and v of `whole` are empty, its masters.
  void join(State whole, SplitState split) const;
  /// The other way. Weights are neither read nor written: publish() makes them.
  void split(SplitState split, State whole) const;

  /// partials[i] = sum of squares of grain i of the span, in double: element j of the grain is
  /// added to lane j mod 16, then lane k takes lane k+8, k+4, k+2, k+1. One partial per grain, the
  /// last grain may be short. A partial is finite exactly when every element of its grain is.
  void grain_norms(Gradient gradient, std::span<double> partials) const;

  /// sum += contribution.
  void accumulate(std::span<float> sum, Values contribution) const;
  /// sum = contribution: the first one.
  void assign(std::span<float> sum, Values contribution) const;
  /// out = a + b, rounded once; out may be a or b itself.
  void add(std::span<float> out, Values a, Values b) const;
  /// out = master, rounded to nearest even.
  void publish(Published out, std::span<const float> master) const;

  /// Other work on the same threads: calls it for disjoint ranges of elements that together are
  /// [0, count) and begin on grains. What one of them throws comes out when all under way have
  /// ended.
  void for_grains(std::size_t count,
                  const std::function<void(std::size_t begin, std::size_t end)>& work) const;

  Isa isa() const;
  unsigned threads() const;
  /// kStreaming or kCached.
  Stores stores() const;
  /// "avx512, 2 threads, cached stores (probe: 1.23 against 1.31 ns per parameter)".
  std::string describe() const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

/// The square root of the sum of all partials of all parts, added in order. Finite exactly when all
/// are.
double global_norm(std::span<const std::span<const double>> parts);

}  // namespace sluice::cpu_adam
