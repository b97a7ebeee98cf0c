/// A decoder's blocks as functions of (parameters, input), forward and backward. They know nothing
/// of tiers, ranks or ZeRO.
///
/// Shape   B sequences of S tokens, hidden size H; tensors named in_ and out_ are contiguous
/// Out     `out_` tensors and gradients are filled whole, whatever lay there; x and out may not
///         overlap
/// Memory  everything else comes from LibTorch's allocator and is free again at the end
/// Thread  the compute thread, which waits for nothing: no number comes back but in an out_ tensor
/// Throws  kBudget when the op exceeds its workspace (engine/tensor); outputs are then unspecified
///
/// Sums are fp32 in an order that depends on the shape alone, rounded once; matrix products and
/// attention are LibTorch's, so the bits are those of one number of compute threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/model/documents.h"
#include "engine/model/kept.h"
#include "engine/model/params.h"
#include "engine/shape/decoder.h"

namespace sluice::model {

/// Tokens are int64 in [0, vocab), positions in [0, S) and below the learned ones.
void embed_forward(const shape::Decoder& decoder, const ParamSource& params,
                   const at::Tensor& tokens_BS, const at::Tensor& positions_BS,
                   at::Tensor out_x_BSH);
/// A row's gradient is the sum over its tokens in the order of the batch.
void embed_backward(const shape::Decoder& decoder, const at::Tensor& tokens_BS,
                    const at::Tensor& positions_BS, const at::Tensor& dx_BSH, GradSink& grads);

/// A token sees those of its document that stand before it.
///
/// mlp_chunk  so many tokens have gate and up at a time; part of a run's numbers
void layer_forward(const shape::Decoder& decoder, const ParamSource& params, const Places& places,
                   const at::Tensor& x_BSH, std::int64_t mlp_chunk, at::Tensor out_BSH);
/// Recomputes what it needs of the forward (all but the last product).
void layer_backward(const shape::Decoder& decoder, const ParamSource& params, const Places& places,
                    const at::Tensor& x_BSH, const at::Tensor& dy_BSH, std::int64_t mlp_chunk,
                    GradSink& grads, at::Tensor out_dx_BSH);

/// The same pair for a layer that keeps its forward: the same bits. Forward fills `kept` whole.
void layer_forward_keep(const shape::Decoder& decoder, const ParamSource& params,
                        const Places& places, const at::Tensor& x_BSH, std::int64_t mlp_chunk,
                        at::Tensor out_BSH, const KeptLayer& kept);
void layer_backward_kept(const shape::Decoder& decoder, const ParamSource& params,
                         const Places& places, const at::Tensor& x_BSH, const at::Tensor& dy_BSH,
                         KeptLayer kept, std::int64_t mlp_chunk, GradSink& grads,
                         at::Tensor out_dx_BSH);

/// Final norm, head and cross entropy, forward and backward in one op. A negative target is none:
/// that token has no loss and no gradient.
///
/// scale       one fp64: multiplies the gradient, not the loss; 1 / targets of the whole step
/// loss_chunk  so many columns of the vocabulary have logits at a time; part of a run's numbers
/// logits      room for those of each chunk, contiguous [N, columns] (kept.h): they are made once,
/// and
///             what is left there is unspecified; none: for the second pass they are made again,
///             with the same bits
/// out_loss    one fp64: cross entropy in nats, summed over the targets
void head_train(const shape::Decoder& decoder, const ParamSource& params, const at::Tensor& x_BSH,
                const at::Tensor& targets_BS, const at::Tensor& scale, std::int64_t loss_chunk,
                const std::vector<at::Tensor>& logits, GradSink& grads, at::Tensor out_dx_BSH,
                at::Tensor out_loss);
void head_loss(const shape::Decoder& decoder, const ParamSource& params, const at::Tensor& x_BSH,
               const at::Tensor& targets_BS, std::int64_t loss_chunk, at::Tensor out_loss);

}  // namespace sluice::model
