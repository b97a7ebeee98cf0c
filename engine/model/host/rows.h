/// The inner loops of the host's work on rows, one copy per instruction set, on one thread: what
/// row_kernels.h and softmax.h ask for, cut into rows and shared out among the compute threads.
///
/// The files rows_*.cpp are compiled with -m flags, so they include this, lanes.h, elementary.h and
/// rows_*.h, nothing else: an inline function of any other header, compiled there for AVX-512,
/// could be the copy that the linker keeps for the whole program.
///
/// Bits   the same on every instruction set: sums run in 16 lanes whatever the registers hold, in
///        an order that the width decides, and nothing is fused
/// Shape  rows of `width` elements, one right after the other where no step is named; a range is
///        that of the rows to work on
#pragma once

#include <cstdint>

namespace sluice::model::rows {

enum class Elem : std::uint8_t { kF32, kBf16, kF16 };

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

struct Range {
  std::int64_t begin, end;
};

struct NormArgs {
  const void *x, *gain, *bias;  ///< no bias: an RMS norm
  void* y;
  float *rstd, *mean;
  std::int64_t width;
  float eps;
};

struct NormBackwardArgs {
  const void *x, *gain, *dy;
  const void* plus;          ///< what is added to the gradient; nothing where there is none
  void* dx;                  ///< may be dy or plus
  const float *rstd, *mean;  ///< no mean: an RMS norm
  std::int64_t width;
  Elem dy_type;
};

/// Sums over rows, fp32; no dbias in an RMS norm.
struct NormSums {
  float *dgain, *dbias;
};

/// Tokens as rows of heads, each of `pairs` pairs (i, i + pairs).
struct TurnArgs {
  const void* x;
  const float *cosine, *sine;
  void* turned;
  std::int64_t heads, pairs;
  std::int64_t step;  ///< from token to token of x
  float sign;
};

enum class Bend : std::uint8_t { kSilu, kGelu, kGeluTanh };

/// Element by element.
struct ActivateArgs {
  Bend bend;
  const void *gate, *up;  ///< no gate: up is what is activated
  void* product;
};
struct ActivateBackwardArgs {
  Bend bend;
  const void *gate, *up;
  void* dproduct;  ///< becomes the gradient of what was activated
  void* dup;       ///< where there is a gate
};

/// A token as a row of logits.
struct SoftmaxArgs {
  void* logits;
  const std::int64_t* target;
  float *max, *sum, *target_logit;
  std::int64_t first, width;  ///< columns of the vocabulary
};

struct LookUpArgs {
  const void *first, *second;  ///< no second: nothing is added
  const std::int64_t *first_id, *second_id;
  void* out;
  std::int64_t width;
};

/// Attention's tiles are of so many queries, side by side, and as many keys, below each other.
inline constexpr std::int64_t kTile = 64;

/// Products of `keys` keys, even in number, and a tile of queries.
struct ScoresArgs {
  const float* scores;  ///< [keys, kTile], not scaled yet
  std::int64_t first_query, first_key, keys;
  std::int64_t window;  ///< keys that a query sees: its own and those before it
  float scale;
};

struct ScoresBackwardArgs {
  ScoresArgs seen;
  const float* dweights;  ///< like the scores
  const float *logsumexp,
      *dots;                ///< per query; dots: of what it made of the values and the gradient
  Bf16 *weights, *dscores;  ///< like the scores; gradients are not scaled
  Bf16* dscore_pairs;       ///< [keys / 2, kTile, 2]
};

/// Sums of fp32 to be rounded to `n` rows of bf16, `step` apart.
struct RoundArgs {
  const float* sums;
  std::int64_t n, width;
  Bf16* to;
  std::int64_t step;
};

/// Some rows of a matrix, by their numbers.
struct Places {
  const std::int64_t* row;
  std::int64_t n;
};

/// Plain function pointers, so that the rest of the room knows no instruction set.
struct Kernels {
  void (*norm)(Elem, const NormArgs&, Range) noexcept;
  /// `sums`: of these rows alone.
  void (*norm_backward)(Elem, const NormBackwardArgs&, NormSums sums, Range) noexcept;
  void (*turn)(Elem, const TurnArgs&, Range) noexcept;
  void (*activate)(Elem, const ActivateArgs&, Range elements) noexcept;
  void (*activate_backward)(Elem, const ActivateBackwardArgs&, Range elements) noexcept;
  /// Updates max, sum and target_logit by these columns.
  void (*see)(Elem, const SoftmaxArgs&, Range) noexcept;
  /// In place: logits become their gradient.
  void (*softmax_backward)(Elem, const SoftmaxArgs&, float scale, Range) noexcept;
  void (*look_up)(Elem, const LookUpArgs&, Range) noexcept;
  /// Of these rows, in fp32 and in their order.
  void (*sum_rows)(Elem, const void* t, std::int64_t width, float* sum, Range) noexcept;
  /// The same of places, rounded.
  void (*sum_places)(Elem, const void* t, std::int64_t width, Places, void* out) noexcept;
  /// The sum of `n` rows of fp32 in their order, rounded; of some columns.
  void (*fold)(Elem, const float* t, std::int64_t n, std::int64_t width, void* out,
               Range columns) noexcept;
  /// exp of each query's scores less the greatest of them, as [keys / 2, kTile, 2], 0 where it does
  /// not see; that greatest one, scaled, and the sum before it is rounded.
  void (*weigh)(const ScoresArgs&, Bf16* pairs, float* max, float* sum) noexcept;
  void (*weigh_backward)(const ScoresBackwardArgs&) noexcept;
  /// Of two rows of bf16 each, `a_step` and `b_step` apart.
  void (*dot_rows)(const Bf16* a, std::int64_t a_step, const Bf16* b, std::int64_t b_step,
                   std::int64_t n, std::int64_t width, float* dots) noexcept;
  /// Of sums [n, width], times `by`.
  void (*round_rows)(const RoundArgs&, float by) noexcept;
  /// Of sums [width, kTile], times the factor of each column, which becomes a row.
  void (*round_columns)(const RoundArgs&, const float* by) noexcept;
};

/// Defined in rows_body.h, instantiated once per instruction set.
template <class Arch>
struct KernelsFor {
  static void norm(Elem, const NormArgs&, Range) noexcept;
  static void norm_backward(Elem, const NormBackwardArgs&, NormSums, Range) noexcept;
  static void turn(Elem, const TurnArgs&, Range) noexcept;
  static void activate(Elem, const ActivateArgs&, Range) noexcept;
  static void activate_backward(Elem, const ActivateBackwardArgs&, Range) noexcept;
  static void see(Elem, const SoftmaxArgs&, Range) noexcept;
  static void softmax_backward(Elem, const SoftmaxArgs&, float scale, Range) noexcept;
  static void look_up(Elem, const LookUpArgs&, Range) noexcept;
  static void sum_rows(Elem, const void* t, std::int64_t width, float* sum, Range) noexcept;
  static void sum_places(Elem, const void* t, std::int64_t width, Places, void* out) noexcept;
  static void fold(Elem, const float* t, std::int64_t n, std::int64_t width, void* out,
                   Range columns) noexcept;
  static void weigh(const ScoresArgs&, Bf16* pairs, float* max, float* sum) noexcept;
  static void weigh_backward(const ScoresBackwardArgs&) noexcept;
  static void dot_rows(const Bf16* a, std::int64_t a_step, const Bf16* b, std::int64_t b_step,
                       std::int64_t n, std::int64_t width, float* dots) noexcept;
  static void round_rows(const RoundArgs&, float by) noexcept;
  static void round_columns(const RoundArgs&, const float* by) noexcept;
};

/// How many floats a register holds. Base: what every CPU of the kind has.
struct Avx512 {
  static constexpr int kFloats = 16;
};
struct Avx2 {
  static constexpr int kFloats = 8;
};
struct Base {
  static constexpr int kFloats = 4;
};

}  // namespace sluice::model::rows
