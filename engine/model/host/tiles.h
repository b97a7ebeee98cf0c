/// Rows of bf16 as the tiles that small products take: kTile rows, zero behind the last one.
///
/// Pairs  a product's right side has the two values that are multiplied at once beside each other:
///        of a matrix [K, N] it is [K / 2, N, 2]
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/model/host/rows.h"

namespace sluice::model::rows {

inline constexpr std::int64_t kWidest = 256;

/// `n` rows of a head, at most kTile, `step` apart, and at most kWidest wide.
struct HeadRows {
  const at::BFloat16* at;
  std::int64_t step, n, width;
};

/// [kTile, width]
void copy_tile(const HeadRows& rows, at::BFloat16* to);
/// [width, kTile]
void turn_tile(const HeadRows& rows, at::BFloat16* to);
/// Pairs of [kTile, width].
void pair_rows(const HeadRows& rows, at::BFloat16* to);
/// Pairs of [width, kTile]; the width is even.
void pair_columns(const HeadRows& rows, at::BFloat16* to);

}  // namespace sluice::model::rows
