/// Gradients of an op that takes its tokens in parts: sums over the parts, in fp32 and in their
/// order, rounded once.
#pragma once

#include <map>

#include "engine/model/params.h"

namespace sluice::model {

class GradientSums : public GradSink {
 public:
  explicit GradientSums(GradSink& to) : to_(to) {}

  /// Where the next part goes: a weight's in the compute dtype, as products give it; a bias's,
  /// itself a sum, in fp32. The part that was asked for before must have been written by now: it is
  /// added, so that no two exist at a time.
  at::Tensor gradient(shape::Role role) override;
  /// Once all parts are there.
  void write();

 private:
  struct Sum {
    at::Tensor out, sum;
  };
  void add_part();

  GradSink& to_;
  std::map<shape::Role, Sum> sums_;
  Sum* of_part_ = nullptr;
  at::Tensor part_;
};

}  // namespace sluice::model
