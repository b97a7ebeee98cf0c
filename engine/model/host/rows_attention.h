/// Attention between its products: from scores to weights, and from their gradients to those of the
/// scores, where a query is a column, so that nothing is summed across lanes; only rows_body.h
/// includes this.
#pragma once

#include "engine/model/host/elementary.h"

namespace sluice::model::rows {

template <class Arch>
struct AttentionRows {
  using L = Lanes<Arch>;
  using R = Row<Arch>;
  using E = Elementary<Arch>;

  static void weigh(const ScoresArgs& a, Bf16* pairs, float* max, float* sum) {
    for (std::int64_t column = 0; column < kTile; column += L::kCount) {
      L most = L::all(kLeast);
      for (std::int64_t key = 0; key < a.keys; ++key) {
        most = L::greater(seen(a, key, column, score(a, key, column), L::all(kLeast)), most);
      }
      most = most * L::all(a.scale);
      L total = L::all(0.0F);
      const auto weight = [&](std::int64_t key) {
        const L scaled = score(a, key, column) * L::all(a.scale);
        return seen(a, key, column, E::exp(scaled - most), L::all(0.0F));
      };
      for (std::int64_t key = 0; key < a.keys; key += 2) {
        const L first = weight(key), second = weight(key + 1);
        total = (total + first) + second;
        first.store_pairs(second, pairs + key * kTile + 2 * column);
      }
      most.store(max + column);
      total.store(sum + column);
    }
  }

  static void weigh_backward(const ScoresBackwardArgs& a) {
    for (std::int64_t column = 0; column < kTile; column += L::kCount) {
      const L logsumexp = L::load(a.logsumexp + column), dot = L::load(a.dots + column);
      // Stores the weight, and gives the gradient of its score.
      const auto dscore = [&](std::int64_t key) {
        const std::int64_t at = key * kTile + column;
        const L scaled = score(a.seen, key, column) * L::all(a.seen.scale);
        const L weight = seen(a.seen, key, column, E::exp(scaled - logsumexp), L::all(0.0F));
        const L gradient = weight * (L::load(a.dweights + at) - dot);
        weight.store(a.weights + at);
        gradient.store(a.dscores + at);
        return gradient;
      };
      for (std::int64_t key = 0; key < a.seen.keys; key += 2) {
        const L first = dscore(key), second = dscore(key + 1);
        first.store_pairs(second, a.dscore_pairs + key * kTile + 2 * column);
      }
    }
  }

  static float dot(const Bf16* a, const Bf16* b, std::int64_t width) {
    return R::sum(width, [&](auto i, auto n) { return L::load(a + i, n) * L::load(b + i, n); });
  }

  static void round_rows(const RoundArgs& a, float by) {
    for (std::int64_t row = 0; row < a.n; ++row) {
      R::over(a.width, [&](auto i, auto n) {
        (L::load(a.sums + row * a.width + i, n) * L::all(by)).store(a.to + row * a.step + i, n);
      });
    }
  }

  static void round_columns(const RoundArgs& a, const float* by) {
    for (std::int64_t column = 0; column < a.n; ++column) {
      R::over(a.width, [&](auto i, auto n) {
        float values[L::kCount] = {};  // NOLINT(modernize-avoid-c-arrays)
        const std::int64_t rows = a.width - i < L::kCount ? a.width - i : L::kCount;
        for (std::int64_t k = 0; k < rows; ++k) values[k] = a.sums[(i + k) * kTile + column];
        (L::load(values) * L::all(by[column])).store(a.to + column * a.step + i, n);
      });
    }
  }

 private:
  static constexpr float kLeast = -__builtin_inff();

  SLUICE_LANES_INLINE static L score(const ScoresArgs& a, std::int64_t key, std::int64_t column) {
    return L::load(a.scores + key * kTile + column);
  }

  /// `value` for the queries from `column` on that see this key. Most keys all queries of a tile
  /// see.
  SLUICE_LANES_INLINE static L seen(const ScoresArgs& a, std::int64_t key, std::int64_t column,
                                    const L& value, const L& otherwise) {
    const std::int64_t before = a.first_query + column - (a.first_key + key);
    if (before >= 0 && before + L::kCount <= a.window) return value;
    // NOLINTNEXTLINE(modernize-avoid-c-arrays)
    constexpr float kNumbers[L::kCount] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const L tokens = L::load(kNumbers) + L::all(static_cast<float>(before));
    const L within =
        L::where_negative(tokens - L::all(static_cast<float>(a.window)), value, otherwise);
    return L::where_negative(tokens, otherwise, within);
  }
};

}  // namespace sluice::model::rows
