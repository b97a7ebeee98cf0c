#include "engine/model/params.h"

#include <optional>

#include "engine/model/attention.h"
#include "engine/model/linear.h"
#include "engine/model/mlp.h"
#include "engine/model/norm.h"

namespace sluice::model {
namespace {

using shape::Role;

void add(std::vector<Role>& roles, const Norm& norm) {
  roles.push_back(norm.gain);
  if (norm.kind == shape::Norm::kLayer) roles.push_back(norm.bias);
}

void add(std::vector<Role>& roles, const Linear& linear) {
  roles.push_back(linear.weight);
  if (linear.bias) roles.push_back(*linear.bias);
}

std::vector<Role> layer_roles(const shape::Decoder& d) {
  std::vector<Role> roles;
  add(roles, attention_norm(d));
  for (const Linear& linear : attention_inputs(d)) add(roles, linear);
  for (const Norm& norm : head_norms(d)) add(roles, norm);
  add(roles, attention_output(d));
  add(roles, mlp_norm(d));
  for (const Linear& linear : mlp_inputs(d)) add(roles, linear);
  add(roles, mlp_output(d));
  return roles;
}

}  // namespace

std::vector<Role> gradient_roles(const shape::Decoder& d, shape::BlockKind block) {
  std::vector<Role> roles;
  switch (block) {
    case shape::BlockKind::kEmbed:
      roles.push_back(Role::kTokenEmbedding);
      if (d.positions == shape::Positions::kLearned) roles.push_back(Role::kPositionEmbedding);
      break;
    case shape::BlockKind::kLayer:
      roles = layer_roles(d);
      break;
    case shape::BlockKind::kHead:
      add(roles, final_norm(d));
      roles.push_back(d.tied_embeddings ? Role::kTokenEmbedding : Role::kHeadWeight);
      break;
  }
  return roles;
}

}  // namespace sluice::model
