#include "engine/model/host/tiles.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::model::rows {

void copy_tile(const HeadRows& rows, at::BFloat16* to) {
  for (std::int64_t row = 0; row < rows.n; ++row) {
    std::copy_n(rows.at + row * rows.step, rows.width, to + row * rows.width);
  }
  std::fill(to + rows.n * rows.width, to + kTile * rows.width, at::BFloat16());
}

void turn_tile(const HeadRows& rows, at::BFloat16* to) {
  for (std::int64_t i = 0; i < rows.width; ++i) {
    at::BFloat16* column = to + i * kTile;
    for (std::int64_t row = 0; row < rows.n; ++row) column[row] = rows.at[row * rows.step + i];
    std::fill(column + rows.n, column + kTile, at::BFloat16());
  }
}

void pair_rows(const HeadRows& rows, at::BFloat16* to) {
  static const std::array<at::BFloat16, kWidest> zeros{};
  const auto row = [&](std::int64_t i) {
    return i < rows.n ? rows.at + i * rows.step : zeros.data();
  };
  for (std::int64_t i = 0; i < kTile; i += 2) {
    const at::BFloat16 *first = row(i), *second = row(i + 1);
    at::BFloat16* pairs = to + i * rows.width;
    for (std::int64_t k = 0; k < rows.width; ++k) {
      pairs[2 * k] = first[k];
      pairs[2 * k + 1] = second[k];
    }
  }
}

void pair_columns(const HeadRows& rows, at::BFloat16* to) {
  for (std::int64_t i = 0; i < rows.width; i += 2) {
    at::BFloat16* pairs = to + i * kTile;
    for (std::int64_t row = 0; row < rows.n; ++row) {
      std::memcpy(pairs + 2 * row, rows.at + row * rows.step + i, 2 * sizeof(at::BFloat16));
    }
    std::fill(pairs + 2 * rows.n, pairs + 2 * kTile, at::BFloat16());
  }
}

}  // namespace sluice::model::rows
