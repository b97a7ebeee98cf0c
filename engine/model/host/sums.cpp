#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "engine/model/host/row_blocks.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

void sum_rows(const at::Tensor& t_NO, const at::Tensor& out_O) {
  at::Tensor sum = at::zeros({t_NO.size(1)}, t_NO.options().dtype(at::kFloat));
  for_row_blocks(t_NO, [&](RowBlock block) { sum.add_(block.in_fp32(t_NO).sum(0)); });
  out_O.copy_(sum);
}

}  // namespace sluice::model
