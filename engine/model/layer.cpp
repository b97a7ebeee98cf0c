#include <c10/core/GradMode.h>

#include <utility>

#include "engine/model/attention.h"
#include "engine/model/blocks.h"
#include "engine/model/kept.h"
#include "engine/model/mlp.h"
#include "engine/model/norm.h"

namespace sluice::model {
namespace {

at::Tensor rows(const shape::Decoder& d, const at::Tensor& x_BSH) {
  return x_BSH.view({-1, d.hidden});
}

/// Backward, once the forward is there again: takes `kept` over and drops each part at its last
/// use. Without gate and up in it, these are made again.
void backward(const shape::Decoder& d, const ParamSource& params, const Places& places,
              const at::Tensor& x_BSH, const at::Tensor& dy_BSH, Normed n1, Normed n2,
              KeptLayer kept, std::int64_t mlp_chunk, GradSink& grads,
              const at::Tensor& out_dx_BSH) {
  const at::Tensor x = rows(d, x_BSH);
  const at::Tensor dy = rows(d, dy_BSH);
  at::Tensor dn2 = mlp_backward(d, params, grads, n2.y_NH, std::move(kept.mlp), mlp_chunk, dy);
  n2.y_NH.reset();
  const at::Tensor dmid = std::exchange(dn2, {});
  backward_plus(mlp_norm(d), params, grads, kept.mid_NH, n2, dmid, dy, dmid);
  kept.mid_NH.reset();
  at::Tensor dcontext =
      backward(attention_output(d), params, grads, kept.attended.context_NQ, dmid);
  at::Tensor dn1 = attend_backward(d, params, grads, n1.y_NH, std::move(kept.attended), places,
                                   std::exchange(dcontext, {}));
  n1.y_NH.reset();
  backward_plus(attention_norm(d), params, grads, x, n1, dn1, dmid, rows(d, out_dx_BSH));
}

}  // namespace

void layer_forward(const shape::Decoder& d, const ParamSource& params, const Places& places,
                   const at::Tensor& x_BSH, std::int64_t mlp_chunk, at::Tensor out_BSH) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = rows(d, x_BSH);
  at::Tensor context =
      attend(d, params, forward(attention_norm(d), params, x).y_NH, places).context_NQ;
  const at::Tensor mid = forward(attention_output(d), params, std::exchange(context, {})).add_(x);
  mlp_forward(d, params, forward(mlp_norm(d), params, mid).y_NH, mid, mlp_chunk, /*keep=*/{},
              rows(d, out_BSH));
}

void layer_forward_keep(const shape::Decoder& d, const ParamSource& params, const Places& places,
                        const at::Tensor& x_BSH, std::int64_t mlp_chunk, at::Tensor out_BSH,
                        const KeptLayer& kept) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = rows(d, x_BSH);
  {
    const Attended a = attend(d, params, forward(attention_norm(d), params, x).y_NH, places);
    kept.attended.q_NQ.copy_(a.q_NQ);
    kept.attended.k_NK.copy_(a.k_NK);
    kept.attended.v_NK.copy_(a.v_NK);
    kept.attended.context_NQ.copy_(a.context_NQ);
    kept.attended.logsumexp_Nh.copy_(a.logsumexp_Nh);
  }
  forward_to(attention_output(d), params, kept.attended.context_NQ, kept.mid_NH);
  kept.mid_NH.add_(x);
  mlp_forward(d, params, forward(mlp_norm(d), params, kept.mid_NH).y_NH, kept.mid_NH, mlp_chunk,
              kept.mlp, rows(d, out_BSH));
}

void layer_backward(const shape::Decoder& d, const ParamSource& params, const Places& places,
                    const at::Tensor& x_BSH, const at::Tensor& dy_BSH, std::int64_t mlp_chunk,
                    GradSink& grads, at::Tensor out_dx_BSH) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = rows(d, x_BSH);
  Normed n1 = forward(attention_norm(d), params, x);
  KeptLayer again{attend(d, params, n1.y_NH, places), {}, {}};
  again.mid_NH = forward(attention_output(d), params, again.attended.context_NQ).add_(x);
  Normed n2 = forward(mlp_norm(d), params, again.mid_NH);
  backward(d, params, places, x_BSH, dy_BSH, std::move(n1), std::move(n2), std::move(again),
           mlp_chunk, grads, out_dx_BSH);
}

void layer_backward_kept(const shape::Decoder& d, const ParamSource& params, const Places& places,
                         const at::Tensor& x_BSH, const at::Tensor& dy_BSH, KeptLayer kept,
                         std::int64_t mlp_chunk, GradSink& grads, at::Tensor out_dx_BSH) {
  const c10::NoGradGuard no_graph;
  Normed n1 = forward(attention_norm(d), params, rows(d, x_BSH));
  Normed n2 = forward(mlp_norm(d), params, kept.mid_NH);
  backward(d, params, places, x_BSH, dy_BSH, std::move(n1), std::move(n2), std::move(kept),
           mlp_chunk, grads, out_dx_BSH);
}

}  // namespace sluice::model
