/// Work on rows in fp64, and how far from it fp32 may be.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "roundings.h"

namespace sluice::model {

/// A layer norm, or without a bias an RMS norm, and what is needed for the way back.
struct NormCase {
  /// The same numbers; the gradient of the result may have more places than all others.
  NormCase to(at::ScalarType dtype, at::ScalarType dy_dtype) const;

  at::Tensor x, gain, bias, dy, plus;
};

/// Roundings on top of each other: in the sum of a row, and in that of a column.
struct Depths {
  double row, column;
};

/// `got`: y, dx, dgain and, of a layer norm, dbias. `x`: no row's mean is far above its spread.
void expect_norm(const std::vector<at::Tensor>& got, const NormCase& c, Depths depths);

}  // namespace sluice::model
