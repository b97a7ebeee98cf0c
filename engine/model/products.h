/// Products of matrices, and what their 16-bit values are computed in.
///
/// Shapes  2-D, of any strides; `bias` one for each column, or none
/// Sums    in fp32, in an order that shapes and threads decide; rounded to the factors' type at the
/// end
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::model {

at::Tensor product(const at::Tensor& a_MK, const at::Tensor& b_KN, const at::Tensor& bias_N = {});
/// The same, to memory that is there.
void product_to(at::Tensor out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                const at::Tensor& bias_N = {});

/// Whether it lies on a processor that has no instructions to multiply values of its type faster
/// than fp32. Then products are made of fp32, which has each of these values. LibTorch would
/// emulate them, or take the slow ones: in bf16 that takes five times as long as fp32, or a third
/// longer, in fp16 a hundred times.
bool is_widened(const at::Tensor& t);

/// What product_to() does with what is widened, a tile at a time: next to nothing is ever there in
/// fp32.
void widened_product_to(at::Tensor out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                        const at::Tensor& bias_N = {});

}  // namespace sluice::model
