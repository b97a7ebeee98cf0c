/// The host's work on the rows of a matrix in blocks, so that fp32 copies of bf16 stay small.
///
/// The blocks depend on the width alone, so sums over them have one fixed order.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace sluice::model {

struct RowBlock {
  std::int64_t begin;
  std::int64_t rows;

  at::Tensor of(const at::Tensor& t) const { return t.narrow(0, begin, rows); }
  at::Tensor in_fp32(const at::Tensor& t) const { return of(t).to(at::kFloat); }
};

/// Calls `body(RowBlock)` for all rows of `t`, first to last.
template <class Body>
void for_row_blocks(const at::Tensor& t, Body body) {
  constexpr std::int64_t kBlockElems = 1 << 18;  // 1 MiB of fp32: stays in a core's cache
  const std::int64_t step = std::max<std::int64_t>(1, kBlockElems / t.size(1));
  for (std::int64_t begin = 0; begin < t.size(0); begin += step) {
    body(RowBlock{begin, std::min(step, t.size(0) - begin)});
  }
}

}  // namespace sluice::model
