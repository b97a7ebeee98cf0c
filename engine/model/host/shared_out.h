/// From tensors to the kernels of rows.h, on all compute threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "engine/model/host/isa.h"
#include "engine/model/host/rows.h"

namespace sluice::model::rows {

/// What exp takes beside reading an element.
inline constexpr std::int64_t kCostOfExp = 4;

/// Calls body(Range) on the compute threads for parts of [0, n), where `cost` elements are to be
/// read for each; little work stays on the caller's. What a body gives must not depend on the cut.
void share_out(std::int64_t n, std::int64_t cost, c10::function_ref<void(Range)> body);

/// Rows in parts that their number alone decides, for sums in two stages: of each part, then of
/// these.
struct Parts {
  explicit Parts(std::int64_t rows);
  Range of(std::int64_t part) const;

  std::int64_t rows, step, n;
};

Elem elem_of(const at::Tensor& t);

template <class T = void>
const T* in(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}
template <class T = void>
T* out(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}

/// out = the sum of the rows of `sums`, fp32.
void fold_rows(const at::Tensor& sums_PO, const at::Tensor& out_O);

}  // namespace sluice::model::rows
