#include "engine/train/compute_ops.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/model/blocks.h"
#include "engine/schedule/catalog.h"
#include "engine/tensor/view.h"

namespace sluice::train {
namespace {

using schedule::OpId;
using schedule::Setup;

/// The tensors of a block's segments, as views into their flat buffers.
class BlockViews {
 public:
  BlockViews(const Setup& setup, const shape::Block& block, const std::vector<std::byte*>& bases,
             std::size_t first)
      : setup_(setup), block_(block), bases_(bases), first_(first) {}

  at::Tensor view(shape::Role role) const {
    for (std::size_t i = 0; i < block_.segments.size(); ++i) {
      const auto s = static_cast<std::size_t>(block_.segments[i]);
      for (const zero::Placed& placed : setup_.layouts[s].tensors) {
        const auto& spec =
            setup_.model.segments[s].tensors[static_cast<std::size_t>(placed.tensor)];
        if (spec.role != role) continue;
        return tensor::view(base(i) + placed.offset_elems * size_of(setup_.compute), spec.shape,
                            setup_.compute);
      }
    }
    throw Error(Errc::kLogic,
                fmt::format("the block has no weight of role {}", static_cast<int>(role)));
  }

  /// Padding of the flat buffers holds zero: it is part of norms and of updates.
  void clear_padding() const {
    for (std::size_t i = 0; i < block_.segments.size(); ++i) {
      const zero::Layout& layout = setup_.layouts[static_cast<std::size_t>(block_.segments[i])];
      std::uint64_t end = 0;
      for (const zero::Placed& placed : layout.tensors) {
        clear(i, end, placed.offset_elems);
        end = placed.end();
      }
      clear(i, end, layout.elems);
    }
  }

  std::size_t tensors() const {
    std::size_t n = 0;
    for (const int s : block_.segments) {
      n += setup_.layouts[static_cast<std::size_t>(s)].tensors.size();
    }
    return n;
  }

 private:
  std::byte* base(std::size_t segment) const { return bases_[first_ + segment]; }
  void clear(std::size_t segment, std::uint64_t from, std::uint64_t to) const {
    const Bytes elem = size_of(setup_.compute);
    std::memset(base(segment) + from * elem, 0, (to - from) * elem);
  }

  const Setup& setup_;
  const shape::Block& block_;
  const std::vector<std::byte*>& bases_;
  std::size_t first_;
};

class Weights : public model::ParamSource {
 public:
  explicit Weights(BlockViews views) : views_(views) {}
  at::Tensor weight(shape::Role role) const override { return views_.view(role); }

 private:
  BlockViews views_;
};

/// Every gradient of the block must be written, once: count who came.
class Gradients : public model::GradSink {
 public:
  explicit Gradients(BlockViews views) : views_(views) { views_.clear_padding(); }
  at::Tensor gradient(shape::Role role) override {
    SLUICE_CHECK(std::find(asked_.begin(), asked_.end(), role) == asked_.end(), kLogic,
                 "a gradient was written twice in one op");
    asked_.push_back(role);
    return views_.view(role);
  }
  void check_complete() const {
    SLUICE_CHECK(
        asked_.size() == views_.tensors(), kLogic,
        fmt::format("an op wrote {} of its {} gradients", asked_.size(), views_.tensors()));
  }

 private:
  BlockViews views_;
  std::vector<shape::Role> asked_;
};

const shape::Block& block_of(const Setup& setup, std::int32_t first_segment) {
  for (const shape::Block& block : setup.model.blocks) {
    if (block.segments.front() == first_segment) return block;
  }
  throw Error(Errc::kLogic, fmt::format("no block begins with segment {}", first_segment));
}

/// The op with views instead of addresses; every member is a view into program buffers.
struct Compute {
  const Setup& setup;
  const Numerics& numerics;
  const OpBytes& op;
  const shape::Block& block;

  const shape::Decoder& decoder() const { return setup.model.decoder; }
  std::size_t weights() const { return block.segments.size(); }
  at::Tensor activation(std::byte* bytes) const {
    return tensor::view(bytes, {setup.micro_batch_size, setup.seq_len, decoder().hidden},
                        setup.compute);
  }
  model::KeptLayer kept(std::byte* bytes) const {
    return model::kept_views(decoder(), setup.micro_batch_tokens(), setup.compute, bytes);
  }
  at::Tensor tokens(std::byte* batch) const { return ids(batch, 0); }
  at::Tensor targets(std::byte* batch) const { return ids(batch, setup.micro_batch_tokens()); }
  at::Tensor ids(std::byte* batch, std::int64_t first) const {
    return tensor::view_int64(reinterpret_cast<std::int64_t*>(batch) + first,
                              {setup.micro_batch_size, setup.seq_len});
  }
  double loss_scale() const { return 1.0 / static_cast<double>(setup.tokens_per_step()); }

  Weights params() const { return Weights({setup, block, op.reads, 0}); }
  Gradients gradients(std::size_t first_write) const {
    return Gradients({setup, block, op.writes, first_write});
  }

  void run() const {
    const auto& in = op.reads;
    const auto& out = op.writes;
    switch (op.id) {
      case OpId::kEmbedForward:
        return model::embed_forward(decoder(), params(), tokens(in[weights()]), activation(out[0]));
      case OpId::kLayerForward:
        return model::layer_forward(decoder(), params(), activation(in[weights()]),
                                    activation(out[0]));
      case OpId::kLayerForwardKeep:
        return model::layer_forward_keep(decoder(), params(), activation(in[weights()]),
                                         activation(out[0]), kept(out[1]));
      case OpId::kHeadTrain: {
        Gradients grads = gradients(2);
        const double loss = model::head_train(decoder(), params(), activation(in[weights()]),
                                              targets(in[weights() + 1]), loss_scale(),
                                              numerics.loss_chunk, grads, activation(out[0]))
                                .loss_sum;
        std::memcpy(out[1], &loss, sizeof loss);
        return grads.check_complete();
      }
      case OpId::kHeadLoss: {
        const double loss = model::head_loss(decoder(), params(), activation(in[weights()]),
                                             targets(in[weights() + 1]), numerics.loss_chunk)
                                .loss_sum;
        std::memcpy(out[0], &loss, sizeof loss);
        return;
      }
      case OpId::kLayerBackward: {
        Gradients grads = gradients(1);
        model::layer_backward(decoder(), params(), activation(in[weights()]),
                              activation(in[weights() + 1]), grads, activation(out[0]));
        return grads.check_complete();
      }
      case OpId::kLayerBackwardKept: {
        Gradients grads = gradients(1);
        model::layer_backward_kept(decoder(), params(), activation(in[weights()]),
                                   activation(in[weights() + 1]), kept(in[weights() + 2]), grads,
                                   activation(out[0]));
        return grads.check_complete();
      }
      case OpId::kEmbedBackward: {
        Gradients grads = gradients(0);
        model::embed_backward(decoder(), tokens(in[0]), activation(in[1]), grads);
        return grads.check_complete();
      }
      default:
        throw Error(Errc::kLogic,
                    fmt::format("'{}' is no op of LibTorch", schedule::kind_of(op.id).name));
    }
  }
};

}  // namespace

ComputeOps::ComputeOps(const Setup& setup, const Numerics& numerics, tensor::Workspace& workspace)
    : setup_(setup), numerics_(numerics), workspace_(workspace) {}

bool ComputeOps::owns(OpId id) {
  switch (id) {
    case OpId::kEmbedForward:
    case OpId::kLayerForward:
    case OpId::kLayerForwardKeep:
    case OpId::kHeadTrain:
    case OpId::kHeadLoss:
    case OpId::kLayerBackward:
    case OpId::kLayerBackwardKept:
    case OpId::kEmbedBackward:
      return true;
    default:
      return false;
  }
}

void ComputeOps::run(const OpBytes& op) {
  tensor::OpScope scope(workspace_, schedule::kind_of(op.id).name);
  Compute{setup_, numerics_, op, block_of(setup_, op.where.segment)}.run();
  scope.close();
}

}  // namespace sluice::train
