#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "engine/model/host/shared_out.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

using namespace rows;

namespace {

/// Places of the batch, those with one row side by side, ascending within it.
struct ByRow {
  explicit ByRow(const at::Tensor& ids_N);
  Places places(std::int64_t run) const {
    const auto* begin = in<std::int64_t>(begin_N1);
    return {in<std::int64_t>(order_N) + begin[run], begin[run + 1] - begin[run]};
  }

  at::Tensor order_N;
  at::Tensor begin_N1;  // of each run of one row, and the end
  std::int64_t runs = 0;
};

ByRow::ByRow(const at::Tensor& ids_N)
    : order_N(at::empty_like(ids_N)), begin_N1(at::empty({ids_N.numel() + 1}, ids_N.options())) {
  const auto* row = in<std::int64_t>(ids_N);
  const std::span order(out<std::int64_t>(order_N), static_cast<std::size_t>(ids_N.numel()));
  auto* begin = out<std::int64_t>(begin_N1);
  std::iota(order.begin(), order.end(), 0);
  // Places differ, so this is one order; a stable sort takes memory that nobody counts.
  std::sort(order.begin(), order.end(), [=](std::int64_t a, std::int64_t b) {
    return std::pair(row[a], a) < std::pair(row[b], b);
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || row[order[i]] != row[order[i - 1]]) begin[runs++] = static_cast<std::int64_t>(i);
  }
  begin[runs] = static_cast<std::int64_t>(order.size());
}

}  // namespace

void look_up(const Lookup& first, const Lookup& second, const at::Tensor& out_NH) {
  const Elem elem = elem_of(out_NH);
  const LookUpArgs args{in(first.table_VH),
                        in(second.table_VH),
                        in<std::int64_t>(first.ids_N),
                        in<std::int64_t>(second.ids_N),
                        out(out_NH),
                        out_NH.size(1)};
  share_out(out_NH.size(0), out_NH.size(1),
            [&](Range some) { kernels().look_up(elem, args, some); });
}

void look_up_backward(const at::Tensor& ids_N, const at::Tensor& dx_NH, const at::Tensor& out_VH) {
  const at::Tensor ids = ids_N.contiguous(), dx = dx_NH.contiguous();
  const ByRow by_row(ids);
  const Elem elem = elem_of(dx);
  const std::int64_t width = dx.size(1);
  const auto row_bytes = static_cast<std::int64_t>(dx.element_size()) * width;
  auto* table = out<std::byte>(out_VH);
  share_out(out_VH.size(0), width, [&](Range some) {
    std::fill(table + some.begin * row_bytes, table + some.end * row_bytes, std::byte{0});
  });
  const std::int64_t of_run = dx.numel() / std::max<std::int64_t>(1, by_row.runs);
  share_out(by_row.runs, of_run, [&](Range some) {
    for (std::int64_t run = some.begin; run < some.end; ++run) {
      const Places places = by_row.places(run);
      const std::int64_t row = in<std::int64_t>(ids)[*places.row];
      kernels().sum_places(elem, in(dx), width, places, table + row * row_bytes);
    }
  });
}

}  // namespace sluice::model
