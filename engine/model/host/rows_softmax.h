/// The cross entropy of logits, a token at a time: once over its logits for their log-sum-exp, once
/// for their gradient; only rows_body.h includes this.
#pragma once

#include "engine/model/host/elementary.h"

namespace sluice::model::rows {

template <class Arch, class T>
struct SoftmaxRows {
  using L = Lanes<Arch>;
  using R = Row<Arch>;
  using E = Elementary<Arch>;

  static void see(const SoftmaxArgs& a, Range rows) {
    for (std::int64_t token = rows.begin; token < rows.end; ++token) {
      const T* row = static_cast<const T*>(a.logits) + token * a.width;
      const float here = R::fold(typename R::Greater{}, a.width,
                                 [&](auto i, auto n) { return L::load(row + i, n); });
      const float before = a.max[token];
      const float max = before > here ? before : here;
      a.sum[token] = a.sum[token] * exp(before - max) + sum_of_exp(row, a.width, max);
      a.max[token] = max;
      const std::int64_t column = a.target[token] - a.first;
      if (column >= 0 && column < a.width) a.target_logit[token] = value(row + column);
    }
  }

  static void backward(const SoftmaxArgs& a, float scale, Range rows) {
    for (std::int64_t token = rows.begin; token < rows.end; ++token) {
      T* row = static_cast<T*>(a.logits) + token * a.width;
      const float by = a.target[token] < 0 ? 0.0F : scale;
      const L share = L::all(by / a.sum[token]), max = L::all(a.max[token]);
      const auto gradient = [&](const L& logit) { return E::exp(logit - max) * share; };
      const std::int64_t column = a.target[token] - a.first;
      const bool here = a.target[token] >= 0 && column >= 0 && column < a.width;
      const L target = here ? L::all(value(row + column)) : max;
      R::over(a.width, [&](auto i, auto n) { gradient(L::load(row + i, n)).store(row + i, n); });
      if (here) (gradient(target) - L::all(by)).store(row + column, Some{1});
    }
  }

 private:
  static float value(const T* p) { return L::load(p, Some{1}).at[0][0]; }
  static float exp(float x) { return E::exp(L::all(x)).at[0][0]; }

  // Of so many columns at a time: then none of 100,000 roundings on top of each other, but 150.
  static float sum_of_exp(const T* row, std::int64_t width, float max) {
    constexpr std::int64_t kColumns = 1024;
    const L greatest = L::all(max);
    float sum = 0;
    for (std::int64_t begin = 0; begin < width; begin += kColumns) {
      const std::int64_t some = width - begin < kColumns ? width - begin : kColumns;
      sum += R::sum(some,
                    [&](auto i, auto n) { return E::exp(L::load(row + begin + i, n) - greatest); });
    }
    return sum;
  }
};

}  // namespace sluice::model::rows
