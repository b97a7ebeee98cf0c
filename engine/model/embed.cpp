#include <c10/core/GradMode.h>

#include "engine/model/blocks.h"
#include "engine/model/row_kernels.h"

namespace sluice::model {
namespace {

using shape::Role;

bool learns_positions(const shape::Decoder& d) {
  return d.positions == shape::Positions::kLearned;
}

at::Tensor of_places(const at::Tensor& ids_BS) {
  return ids_BS.view({-1});
}

}  // namespace

void embed_forward(const shape::Decoder& d, const ParamSource& params, const at::Tensor& tokens_BS,
                   const at::Tensor& positions_BS, at::Tensor out_x_BSH) {
  const c10::NoGradGuard no_graph;
  const Lookup tokens{params.weight(Role::kTokenEmbedding), of_places(tokens_BS)};
  Lookup positions;
  if (learns_positions(d)) {
    positions = {params.weight(Role::kPositionEmbedding), of_places(positions_BS)};
  }
  look_up(tokens, positions, out_x_BSH.view({-1, d.hidden}));
}

void embed_backward(const shape::Decoder& d, const at::Tensor& tokens_BS,
                    const at::Tensor& positions_BS, const at::Tensor& dx_BSH, GradSink& grads) {
  const c10::NoGradGuard no_graph;
  const at::Tensor dx_NH = dx_BSH.view({-1, d.hidden});
  look_up_backward(of_places(tokens_BS), dx_NH, grads.gradient(Role::kTokenEmbedding));
  if (learns_positions(d)) {
    look_up_backward(of_places(positions_BS), dx_NH, grads.gradient(Role::kPositionEmbedding));
  }
}

}  // namespace sluice::model
