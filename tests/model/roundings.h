/// What roundings cost: how far from fp64 a result may be.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::model {

/// Half the distance of neighbours, relative: what one rounding costs.
double unit(at::ScalarType dtype);
/// The same below the normal numbers, where it is a fixed amount; 0 where nothing here is so small.
double least_unit(at::ScalarType dtype);

/// Each element is off by no more than is `allowed` of it; a narrower one by its own rounding on
/// top.
void expect_within(const at::Tensor& got, const at::Tensor& exact, const at::Tensor& allowed);
/// By no more than so many roundings of fp32 of what it is made of.
void expect_within(const at::Tensor& got, const at::Tensor& exact, double roundings,
                   const at::Tensor& made_of);

}  // namespace sluice::model
