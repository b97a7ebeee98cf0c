/// Work on rows in fp64, and how far from it fp32 may be: by some roundings of the magnitudes that
/// a value is made of.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace sluice::model {

/// Half the distance of neighbours, relative: what one rounding costs.
double unit(at::ScalarType dtype);

/// Each element is off by no more than so many roundings of fp32 of what it is made of; a narrower
/// one by its own rounding on top.
void expect_within(const at::Tensor& got, const at::Tensor& exact, double roundings,
                   const at::Tensor& made_of);

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
