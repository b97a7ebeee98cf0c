/// Where a model function gets its weights from and writes its gradients to.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/shape/model.h"

namespace sluice::model {

/// The weights of the segments that an op works on, in the compute dtype.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  virtual at::Tensor weight(shape::Role role) const = 0;
};

/// The gradients of those weights, in the compute dtype: views into the flat buffer of a segment.
/// An op writes every element of each of its roles once and reads none, whatever lies there before.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual at::Tensor gradient(shape::Role role) = 0;
};

/// Exactly the roles that the backward op of a block asks of its GradSink.
std::vector<shape::Role> gradient_roles(const shape::Decoder& decoder, shape::BlockKind block);

}  // namespace sluice::model
