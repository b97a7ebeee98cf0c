#include "engine/compute/model_ops.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/blocks.h"
#include "engine/schedule/batch.h"
#include "engine/tensor/allocator.h"
#include "engine/tensor/view.h"
#include "engine/train/record.h"

namespace sluice::compute {
namespace {

using schedule::Operand;
using schedule::OpId;
using schedule::Setup;
using train::Numerics;
using train::OpBytes;

/// The tensors of a block's segments, as views into their flat buffers.
class BlockViews {
 public:
  BlockViews(const Setup& setup, const shape::Block& block, std::span<const OpBytes::Bytes> buffers)
      : setup_(setup), block_(block), buffers_(buffers) {}

  at::Tensor view(shape::Role role) const {
    for (std::size_t i = 0; i < block_.segments.size(); ++i) {
      const auto s = static_cast<std::size_t>(block_.segments[i]);
      for (const zero::Placed& placed : setup_.layouts[s].tensors) {
        const auto& spec =
            setup_.model->segments[s].tensors[static_cast<std::size_t>(placed.tensor)];
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
  std::byte* base(std::size_t segment) const { return buffers_[segment].data(); }
  void clear(std::size_t segment, std::uint64_t from, std::uint64_t to) const {
    const Bytes elem = size_of(setup_.compute);
    if (to > from) tensor::clear({base(segment) + from * elem, (to - from) * elem});
  }

  const Setup& setup_;
  const shape::Block& block_;
  std::span<const OpBytes::Bytes> buffers_;  // by the block's segments
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
  for (const shape::Block& block : setup.model->blocks) {
    if (block.segments.front() == first_segment) return block;
  }
  throw Error(Errc::kLogic, fmt::format("no block begins with segment {}", first_segment));
}

/// The op with views instead of bytes.
struct Call {
  const Setup& setup;
  const Numerics& numerics;
  const OpBytes& op;
  const shape::Block& block;

  const shape::Decoder& decoder() const { return setup.model->decoder; }
  Weights weights() const { return Weights({setup, block, op.all(Operand::kWeights)}); }
  Gradients gradients() const { return Gradients({setup, block, op.all(Operand::kGradients)}); }
  at::Tensor activation(Operand name) const {
    return tensor::view(op[name].data(), {setup.micro_batch_size, setup.seq_len, decoder().hidden},
                        setup.compute);
  }
  at::Tensor input() const { return activation(Operand::kInput); }
  at::Tensor output() const { return activation(Operand::kOutput); }
  at::Tensor output_gradient() const { return activation(Operand::kOutputGradient); }
  at::Tensor input_gradient() const { return activation(Operand::kInputGradient); }
  model::KeptLayer kept() const {
    return model::kept_views(decoder(), setup.micro_batch_tokens(), setup.compute,
                             op[Operand::kKept].data());
  }
  std::vector<at::Tensor> kept_logits() const {
    if (!op.has(Operand::kKept)) return {};
    return model::kept_logits_views(decoder(), setup.micro_batch_tokens(), numerics.loss_chunk,
                                    setup.compute, op[Operand::kKept].data());
  }
  schedule::Batch batch() const {
    return schedule::batch_of(op.values<std::int64_t>(Operand::kBatch));
  }
  at::Tensor tokens() const { return ids(batch().tokens); }
  at::Tensor targets() const { return ids(batch().targets); }
  at::Tensor positions() const { return ids(batch().positions); }
  at::Tensor ids(std::span<std::int64_t> of) const {
    return tensor::view_int64(of.data(), {setup.micro_batch_size, setup.seq_len});
  }
  /// The host launches by what it knows of the documents; kernels read the same on the device.
  model::Places places() const {
    const auto known = schedule::batch_of(op.values<std::int64_t>(Operand::kHostBatch));
    std::vector<model::Document> documents = model::documents_of(known.ends, setup.seq_len);
    const auto ends = static_cast<std::int64_t>(documents.size()) + 1;
    return {positions(), {std::move(documents), tensor::view_int32(batch().ends.data(), {ends})}};
  }
  /// The loss scale over the count of targets. Computed where the count lies.
  at::Tensor scale() const {
    const auto& control = op.values<const train::Control>(Operand::kControl).front();
    return tensor::view_int64(&batch().program_targets, {})
        .to(at::kDouble)
        .reciprocal_()
        .mul_(static_cast<double>(control.loss_scale));
  }
  at::Tensor loss() const {
    return tensor::view_fp64(op.values<double>(Operand::kLoss).data(), {});
  }

  void run() const {
    switch (op.id) {
      case OpId::kEmbedForward:
        return model::embed_forward(decoder(), weights(), tokens(), positions(), output());
      case OpId::kLayerForward:
        return model::layer_forward(decoder(), weights(), places(), input(), numerics.mlp_chunk,
                                    output());
      case OpId::kLayerForwardKeep:
        return model::layer_forward_keep(decoder(), weights(), places(), input(),
                                         numerics.mlp_chunk, output(), kept());
      case OpId::kHeadTrain:
      case OpId::kHeadTrainKeep: {
        Gradients grads = gradients();
        model::head_train(decoder(), weights(), input(), targets(), scale(), numerics.loss_chunk,
                          kept_logits(), grads, input_gradient(), loss());
        return grads.check_complete();
      }
      case OpId::kHeadLoss:
        return model::head_loss(decoder(), weights(), input(), targets(), numerics.loss_chunk,
                                loss());
      case OpId::kLayerBackward: {
        Gradients grads = gradients();
        model::layer_backward(decoder(), weights(), places(), input(), output_gradient(),
                              numerics.mlp_chunk, grads, input_gradient());
        return grads.check_complete();
      }
      case OpId::kLayerBackwardKept: {
        Gradients grads = gradients();
        model::layer_backward_kept(decoder(), weights(), places(), input(), output_gradient(),
                                   kept(), numerics.mlp_chunk, grads, input_gradient());
        return grads.check_complete();
      }
      case OpId::kEmbedBackward: {
        Gradients grads = gradients();
        model::embed_backward(decoder(), tokens(), positions(), output_gradient(), grads);
        return grads.check_complete();
      }
      default:
        throw Error(Errc::kLogic,
                    fmt::format("'{}' is no function of a block", schedule::kind_of(op.id).name));
    }
  }
};

}  // namespace

void run_in(tensor::Workspace& workspace, const Setup& setup, const Numerics& numerics,
            const OpBytes& op) {
  tensor::OpScope scope(workspace, schedule::kind_of(op.id).name);
  Call{setup, numerics, op, block_of(setup, op.where.segment)}.run();
  scope.close();
}

ModelOps::ModelOps(const Setup& setup, const Numerics& numerics)
    : setup_(setup), numerics_(numerics) {
  tensor::install_allocator();
}

void ModelOps::set_workspace(std::span<std::byte> memory, Bytes side) {
  workspace_.emplace(memory, side);
}

void ModelOps::run(const OpBytes& op) {
  SLUICE_CHECK(workspace_.has_value(), kLogic, "an op was run before there was a workspace");
  run_in(*workspace_, setup_, numerics_, op);
}

train::WorkspaceUse ModelOps::peak() const {
  if (!workspace_) return {};
  const tensor::Usage usage = workspace_->peak();
  return {usage.main, usage.side, usage.spilled};
}

train::MakeCompute on_libtorch() {
  return [](const Setup& setup, const Numerics& numerics) {
    return std::make_unique<ModelOps>(setup, numerics);
  };
}

}  // namespace sluice::compute
