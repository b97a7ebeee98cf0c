#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "engine/model/host/shared_out.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {

using namespace rows;

Normed norm_rows(const at::Tensor& x_NH, const at::Tensor& gain_H, const at::Tensor& bias_H,
                 double eps) {
  const at::Tensor x = x_NH.contiguous();
  const auto fp32 = x.options().dtype(at::kFloat);
  Normed normed{at::empty_like(x), at::empty({x.size(0), 1}, fp32), {}};
  if (bias_H.defined()) normed.mean_N1 = at::empty({x.size(0), 1}, fp32);
  const Elem elem = elem_of(x);
  const NormArgs args{in(x),
                      in(gain_H),
                      in(bias_H),
                      out(normed.y_NH),
                      out<float>(normed.rstd_N1),
                      out<float>(normed.mean_N1),
                      x.size(1),
                      static_cast<float>(eps)};
  share_out(x.size(0), x.size(1), [&](Range some) { kernels().norm(elem, args, some); });
  return normed;
}

void norm_rows_backward(const at::Tensor& x_NH, const Normed& normed, const at::Tensor& gain_H,
                        const at::Tensor& dy_NH, const at::Tensor& plus_NH, NormGradients to) {
  const at::Tensor x = x_NH.contiguous(), dy = dy_NH.contiguous();
  const Parts parts(x.size(0));
  const auto sums_of_parts = [&](const at::Tensor& wanted) {
    return wanted.defined() ? at::empty({parts.n, x.size(1)}, x.options().dtype(at::kFloat))
                            : at::Tensor();
  };
  const at::Tensor dgain = sums_of_parts(to.out_dgain_H), dbias = sums_of_parts(to.out_dbias_H);
  const NormBackwardArgs args{in(x),
                              in(gain_H),
                              in(dy),
                              in(plus_NH),
                              out(to.out_dx_NH),
                              in<float>(normed.rstd_N1),
                              in<float>(normed.mean_N1),
                              x.size(1),
                              elem_of(dy)};
  const Elem elem = elem_of(x);
  share_out(parts.n, parts.step * x.size(1), [&](Range some) {
    for (std::int64_t part = some.begin; part < some.end; ++part) {
      const auto sum_of = [&](const at::Tensor& sums) {
        return sums.defined() ? out<float>(sums) + part * x.size(1) : nullptr;
      };
      kernels().norm_backward(elem, args, {sum_of(dgain), sum_of(dbias)}, parts.of(part));
    }
  });
  fold_rows(dgain, to.out_dgain_H);
  if (dbias.defined()) fold_rows(dbias, to.out_dbias_H);
}

}  // namespace sluice::model
