#include "engine/model/host/shared_out.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"

namespace sluice::model::rows {

void share_out(std::int64_t n, std::int64_t cost, c10::function_ref<void(Range)> body) {
  // What a thread reads from a cache in about the time that it takes to wake it.
  constexpr std::int64_t kLeast = 1 << 14;
  const std::int64_t grain = std::max<std::int64_t>(1, kLeast / std::max<std::int64_t>(1, cost));
  at::parallel_for(0, n, grain, [&](std::int64_t begin, std::int64_t end) {
    body(Range{begin, end});
  });
}

// Enough for many threads; of rows enough that the sums of parts are little beside them.
Parts::Parts(std::int64_t all) : rows(all) {
  constexpr std::int64_t kMost = 128, kLeastRows = 32;
  step = std::max(kLeastRows, (rows + kMost - 1) / kMost);
  n = (rows + step - 1) / step;
}

Range Parts::of(std::int64_t part) const {
  return {part * step, std::min(rows, (part + 1) * step)};
}

Elem elem_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return Elem::kF32;
    case at::kBFloat16:
      return Elem::kBf16;
    case at::kHalf:
      return Elem::kF16;
    default:
      throw Error(Errc::kLogic,
                  fmt::format("no kernel works on {}", at::toString(t.scalar_type())));
  }
}

void fold_rows(const at::Tensor& sums_PO, const at::Tensor& out_O) {
  const std::int64_t parts = sums_PO.size(0), width = sums_PO.size(1);
  const Elem elem = elem_of(out_O);
  share_out(width, parts, [&](Range columns) {
    kernels().fold(elem, in<float>(sums_PO), parts, width, out(out_O), columns);
  });
}

}  // namespace sluice::model::rows
