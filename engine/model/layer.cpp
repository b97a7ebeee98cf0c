#include <c10/core/GradMode.h>

#include <utility>

#include "engine/model/attention.h"
#include "engine/model/blocks.h"
#include "engine/model/mlp.h"
#include "engine/model/norm.h"

namespace sluice::model {

void layer_forward(const shape::Decoder& d, const ParamSource& params, const at::Tensor& x_BSH,
                   at::Tensor out_BSH) {
  const c10::NoGradGuard no_graph;
  const BatchShape shape{x_BSH.size(0), x_BSH.size(1)};
  const at::Tensor x = x_BSH.view({-1, d.hidden});

  at::Tensor context =
      attend(d, params, forward(attention_norm(d), params, x).y_NH, shape, Keep::kNothing)
          .context_NQ();
  at::Tensor mid = forward(attention_output(d), params, context).add_(x);
  context.reset();

  at::Tensor n = forward(mlp_norm(d), params, mid).y_NH;
  MlpInputs inputs = mlp_forward_inputs(d, params, n);
  n.reset();
  out_BSH.view({-1, d.hidden}).copy_(mlp_forward_output(d, params, inputs).add_(mid));
}

void layer_backward(const shape::Decoder& d, const ParamSource& params, const at::Tensor& x_BSH,
                    const at::Tensor& dy_BSH, GradSink& grads, at::Tensor out_dx_BSH) {
  const c10::NoGradGuard no_graph;
  const BatchShape shape{x_BSH.size(0), x_BSH.size(1)};
  const at::Tensor x = x_BSH.view({-1, d.hidden});
  const at::Tensor dy = dy_BSH.view({-1, d.hidden});

  Normed n1 = forward(attention_norm(d), params, x);
  Attended attended = attend(d, params, n1.y_NH, shape, Keep::kForBackward);
  at::Tensor context = attended.context_NQ();
  at::Tensor mid = forward(attention_output(d), params, context).add_(x);
  Normed n2 = forward(mlp_norm(d), params, mid);
  MlpInputs inputs = mlp_forward_inputs(d, params, n2.y_NH);

  at::Tensor dn2 = mlp_backward(d, params, grads, n2.y_NH, std::move(inputs), dy);
  n2.y_NH.reset();
  at::Tensor dmid = backward(mlp_norm(d), params, grads, mid, n2, dn2).add_(dy);
  dn2.reset();
  mid.reset();
  at::Tensor dcontext = backward(attention_output(d), params, grads, context, dmid);
  context.reset();
  at::Tensor dn1 =
      attend_backward(d, params, grads, n1.y_NH, std::move(attended), std::exchange(dcontext, {}));
  n1.y_NH.reset();
  const at::Tensor dx = backward(attention_norm(d), params, grads, x, n1, dn1).add_(dmid);
  out_dx_BSH.view({-1, d.hidden}).copy_(dx);
}

}  // namespace sluice::model
