/// The cross entropy of logits: one pass over them for their log-sum-exp, one for their gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>

#include "engine/model/fused/types.h"
#include "engine/model/softmax.h"

namespace sluice::model::fused {

/// What is known of each token's logits.
struct TokenSums {
  const std::int64_t* target;
  float *max, *sum, *target_logit;

  SLUICE_DEVICE bool has_target(std::int64_t token) const { return target[token] >= 0; }
};

template <class T, int kPack>
struct SeeRow {
  const T* logits;
  TokenSums of;
  std::int64_t begin, width;  // columns

  struct Running {
    float max = Greater::kNone, sum = 0;
  };

  template <class Team>
  SLUICE_DEVICE void operator()(const Team& team, std::int64_t token) const {
    const T* row = logits + token * width;
    typename Team::template Each<Running> running;
    team.each([&](int thread) {
      Running mine;
      for_packs<kPack>(team, thread, width, [&](std::int64_t i) {
        const Floats<kPack> x = load<kPack>(row + i);
        float max = mine.max;
        for (int k = 0; k < kPack; ++k) max = Greater{}(x.at[k], max);
        mine.sum *= expf(mine.max - max);
        for (int k = 0; k < kPack; ++k) mine.sum += expf(x.at[k] - max);
        mine.max = max;
      });
      running[thread] = mine;
    });
    const float before = of.max[token];
    const float here = team.greatest([&](int thread) { return running[thread].max; });
    const float max = Greater{}(here, before);
    const float sum =
        team.sum([&](int thread) { return running[thread].sum * expf(running[thread].max - max); });
    team.each([&](int thread) {
      if (thread != 0) return;
      of.sum[token] = of.sum[token] * expf(before - max) + sum;
      of.max[token] = max;
      const std::int64_t column = of.target[token] - begin;
      if (column >= 0 && column < width) of.target_logit[token] = static_cast<float>(row[column]);
    });
  }
};

/// In place: logits become their gradient.
template <class T, int kPack>
struct LogitGradient {
  T* logits;
  TokenSums of;
  const double* scale;
  std::int64_t begin, width;

  SLUICE_DEVICE void operator()(std::int64_t pack) const {
    const std::int64_t i = pack * kPack, token = i / width, column = i % width;
    const float by = of.has_target(token) ? static_cast<float>(*scale) : 0.0F;
    const float share = by / of.sum[token];
    Floats<kPack> x = load<kPack>(logits + i);
    for (int k = 0; k < kPack; ++k) {
      x.at[k] = expf(x.at[k] - of.max[token]) * share;
      if (of.has_target(token) && begin + column + k == of.target[token]) x.at[k] -= by;
    }
    store<kPack>(logits + i, x);
  }
};

/// One team over all tokens.
struct LossSum {
  TokenSums of;
  double* loss;
  std::int64_t tokens;

  template <class Team>
  SLUICE_DEVICE void operator()(const Team& team, std::int64_t) const {
    const double sum = team.sum([&](int thread) {
      double mine = 0;
      for_packs<1>(team, thread, tokens, [&](std::int64_t i) {
        if (of.has_target(i)) mine += logf(of.sum[i]) + of.max[i] - of.target_logit[i];
      });
      return mine;
    });
    team.each([&](int thread) {
      if (thread == 0) *loss = sum;
    });
  }
};

/// The class of softmax.h on a `Launch`; its members come from there.
struct SoftmaxState {
  const at::Tensor &targets_N1, &max_N1, &sum_N1, &target_logit_N1;

  std::int64_t tokens() const { return targets_N1.size(0); }
  TokenSums sums() const {
    return {in<std::int64_t>(targets_N1), out<float>(max_N1), out<float>(sum_N1),
            out<float>(target_logit_N1)};
  }
};

template <class Launch>
void see(const Launch& launch, const SoftmaxState& state, Columns columns,
         const at::Tensor& logits) {
  const at::Tensor logits_NC = logits.contiguous();
  const auto run = [&]<class T, int kPack>() {
    launch_rows(launch, state.tokens(), columns.n,
                SeeRow<T, kPack>{in<T>(logits_NC), state.sums(), columns.begin, columns.n});
  };
  with_type_and_pack(logits_NC.scalar_type(), run, columns.n);
}

template <class Launch>
at::Tensor gradient(const Launch& launch, const SoftmaxState& state, Columns columns,
                    at::Tensor logits_NC, const at::Tensor& scale) {
  logits_NC = logits_NC.contiguous();
  const auto run = [&]<class T, int kPack>() {
    launch.each(logits_NC.numel() / kPack,
                LogitGradient<T, kPack>{out<T>(logits_NC), state.sums(), in<double>(scale),
                                        columns.begin, columns.n});
  };
  with_type_and_pack(logits_NC.scalar_type(), run, columns.n);
  return logits_NC;
}

template <class Launch>
void write_loss_sum(const Launch& launch, const SoftmaxState& state, const at::Tensor& loss) {
  launch.template teams<kWholeBlock>(1, LossSum{state.sums(), out<double>(loss), state.tokens()});
}

}  // namespace sluice::model::fused
