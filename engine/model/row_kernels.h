/// The work on rows of matrices that is no product: norms, rotary turning, activations, sums and
/// lookups. Every folder model/BACKEND defines these functions; CMake links one.
///
/// Shape   matrices have N rows, one per token or per head of a token; results are new and
/// contiguous,
///         `out_` tensors are filled whole, whatever lay there
/// Memory  where the operands lie, all in one place. Only the backend reads it: nothing comes back
///         to the host, and nothing is waited for
/// Sums    fp32, in an order that depends on the shape alone, rounded once
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/shape/decoder.h"

namespace sluice::model {

struct Normed {
  at::Tensor y_NH;
  at::Tensor rstd_N1;  ///< fp32; with the input all that backward needs
  at::Tensor mean_N1;  ///< fp32; of a layer norm
};

/// A layer norm, or without a bias an RMS norm.
Normed norm_rows(const at::Tensor& x_NH, const at::Tensor& gain_H, const at::Tensor& bias_H,
                 double eps);
/// Where the gradients of a norm go. out_dbias is that of a layer norm.
struct NormGradients {
  at::Tensor out_dgain_H, out_dbias_H;
  at::Tensor out_dx_NH;  ///< may lie where dy does, in one dtype, or `plus`
};
/// dx is the gradient of x, plus `plus` where there is one. dy may be fp32 beside a bf16 x.
void norm_rows_backward(const at::Tensor& x_NH, const Normed& normed, const at::Tensor& gain_H,
                        const at::Tensor& dy_NH, const at::Tensor& plus_NH, NormGradients to);

/// How far the pairs (i, i + D/2) of each token's heads turn: P = D/2 of them.
struct Rotary {
  at::Tensor cos_BS1P, sin_BS1P;  ///< fp32
};
enum class Turn { kForward, kBack };

/// Of the angles position * frequency, times `factor`. Frequencies are fp32, [P] or [N, P].
Rotary turns_of(const at::Tensor& positions_BS, const at::Tensor& frequencies, double factor);
/// fp32 inside, rounded once. x may be some columns of a wider matrix.
at::Tensor rotate(const at::Tensor& x_BShD, const Rotary& rotary, Turn turn);

/// What the first products of an MLP gave.
struct MlpInputs {
  at::Tensor gate_NI;  ///< of a gated MLP
  at::Tensor up_NI;
};

/// activation(gate) * up, or activation(up) where nothing is gated.
at::Tensor activate(shape::Activation activation, const MlpInputs& inputs);
/// The gradients of its inputs from the one of its result. Takes both over, so that their memory is
/// free, or is used again, as early as can be.
MlpInputs activate_backward(shape::Activation activation, MlpInputs&& inputs, at::Tensor dproduct);

/// The sum of all rows.
void sum_rows(const at::Tensor& t_NO, const at::Tensor& out_O);

/// Rows of a table, one for each id; ids are int64 and below V.
struct Lookup {
  at::Tensor table_VH, ids_N;
};
/// The rows of `first`, plus those of `second` where it has a table.
void look_up(const Lookup& first, const Lookup& second, const at::Tensor& out_NH);
/// The gradient of a table: to each row the sum over the places that took it, in ascending order.
void look_up_backward(const at::Tensor& ids_N, const at::Tensor& dx_NH, const at::Tensor& out_VH);

}  // namespace sluice::model
