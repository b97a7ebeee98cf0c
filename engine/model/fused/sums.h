/// Sums over the rows of a matrix, in two stages: of some rows each, then of these.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/model/fused/types.h"

namespace sluice::model::fused {

template <class Value>
struct SomeRows {
  Value value;
  float* sums;
  std::int64_t rows, width, step;

  SLUICE_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t column = i % width, begin = i / width * step;
    const std::int64_t end = begin + step < rows ? begin + step : rows;
    float sum = 0;
    for (std::int64_t row = begin; row < end; ++row) sum += value(row, column);
    sums[i] = sum;
  }
};

template <class T>
struct AllRows {
  const float* sums;
  T* out;
  std::int64_t parts, width;

  SLUICE_DEVICE void operator()(std::int64_t column) const {
    float sum = 0;
    for (std::int64_t part = 0; part < parts; ++part) sum += sums[part * width + column];
    out[column] = static_cast<T>(sum);
  }
};

/// Rows of a first sum: at least 32, and parts enough for half a million threads.
inline std::int64_t rows_of_part(std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kThreads = 1 << 19, kLeastRows = 32, kLeastParts = 64, kMostParts = 1024;
  const std::int64_t parts = std::clamp(kThreads / width, kLeastParts, kMostParts);
  return std::max(kLeastRows, (rows + parts - 1) / parts);
}

/// value(row, column), summed over rows.
template <class Launch, class Value>
void sum_columns(const Launch& launch, std::int64_t rows, const Value& value,
                 const at::Tensor& out_O) {
  const std::int64_t width = out_O.size(0);
  const std::int64_t step = rows_of_part(rows, width), parts = (rows + step - 1) / step;
  const at::Tensor sums = at::empty({parts, width}, out_O.options().dtype(at::kFloat));
  launch.each(parts * width, SomeRows<Value>{value, out<float>(sums), rows, width, step});
  with_type(out_O.scalar_type(), [&]<class T>() {
    launch.each(width, AllRows<T>{in<float>(sums), out<T>(out_O), parts, width});
  });
}

template <class T>
struct Element {
  const T* t;
  std::int64_t width;
  SLUICE_DEVICE float operator()(std::int64_t row, std::int64_t column) const {
    return static_cast<float>(t[row * width + column]);
  }
};

template <class Launch>
void sum_rows(const Launch& launch, const at::Tensor& t_NO, const at::Tensor& out_O) {
  const at::Tensor t = t_NO.contiguous();
  with_type(t.scalar_type(), [&]<class T>() {
    sum_columns(launch, t.size(0), Element<T>{in<T>(t), t.size(1)}, out_O);
  });
}

}  // namespace sluice::model::fused
