#include <ATen/ops/empty.h>

#include "engine/model/host/shared_out.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

using namespace rows;

void sum_rows(const at::Tensor& t_NO, const at::Tensor& out_O) {
  const at::Tensor t = t_NO.contiguous();
  const Parts parts(t.size(0));
  const std::int64_t width = t.size(1);
  const at::Tensor sums = at::empty({parts.n, width}, t.options().dtype(at::kFloat));
  const Elem elem = elem_of(t);
  share_out(parts.n, parts.step * width, [&](Range some) {
    for (std::int64_t part = some.begin; part < some.end; ++part) {
      kernels().sum_rows(elem, in(t), width, out<float>(sums) + part * width, parts.of(part));
    }
  });
  fold_rows(sums, out_O);
}

}  // namespace sluice::model
