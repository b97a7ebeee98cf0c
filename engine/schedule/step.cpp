#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/schedule/gradients.h"
#include "engine/schedule/programs.h"

namespace sluice::schedule {
namespace {

using enum Operand;

/// One training step. Each function appends ops in an order that is correct when they run one by
/// one; which of them there are follows from where the bytes live.
class Step : public GradientWriter {
 public:
  Step(const Setup& setup, const Catalog& catalog, Applies applies)
      : GradientWriter("step", setup, catalog),
        applies_(applies),
        fresh_(static_cast<std::size_t>(segments())) {}

  std::shared_ptr<const prefetch::Program> write() {
    if (applies_ == Applies::kLast) take_records();
    const auto micro_batches = static_cast<int>(setup_.micro_batches);
    const auto together = static_cast<int>(setup_.sweep);
    for (int first = 0; first < micro_batches; first += together) {
      sweep({first, std::min(first + together, micro_batches)});
    }
    if (arriving()) {
      end_update();
    } else {
      decide();
      for (int s = 0; applies_ == Applies::kOwn && s < segments(); ++s) update(s);
    }
    return finish();
  }

 private:
  /// Some micro-batches on their way through the blocks and back, and what waits for the way back.
  struct Sweep {
    int first, end;
    std::map<int, FetchedBatch> batch = {};              // by micro-batch
    std::map<int, BufferId> x = {};                      // output of the block before
    std::map<int, BufferId> dx = {};                     // gradient for the output of the next one
    std::map<std::pair<int, int>, BufferId> saved = {};  // by block and micro-batch: its input
    std::map<std::pair<int, int>, BufferId> kept = {};   // likewise: its forward, of kept layers
  };

  /// Block by block, so that weights are fetched once for all of these micro-batches.
  void sweep(Sweep s) {
    forward(s);
    head(s);
    backward(s);
  }

  int last_block() const { return blocks() - 1; }  // the head
  bool is_last(const Sweep& s) const { return s.end == setup_.micro_batches; }

  void forward(Sweep& s) {
    for (int mb = s.first; mb < s.end; ++mb) s.batch[mb] = fetch_batch(mb);
    for (int b = 0; b < last_block(); ++b) {
      const Buffers weights = fetch(block(b));
      for (int mb = s.first; mb < s.end; ++mb) {
        const auto input = b == 0 ? std::nullopt : std::optional(s.x[mb]);
        s.x[mb] = setup_.keeps(b) ? forward_keeping(s, b, weights, mb)
                                  : ProgramWriter::forward(b, weights, s.batch[mb], input, mb);
        if (b + 1 < last_block()) s.saved[{b + 1, mb}] = save(b + 1, mb, s.x[mb]);
      }
    }
  }

  BufferId forward_keeping(Sweep& s, int b, const Buffers& weights, int mb) {
    const BufferId output = activation();
    const BufferId kept = s.kept[{b, mb}] = transient(catalog_.kept, catalog_.sizes.kept);
    compute(OpId::kLayerForwardKeep, b, mb,
            {{kWeights, weights},
             {kInput, s.x[mb]},
             {kBatch, s.batch[mb].device},
             {kHostBatch, s.batch[mb].host},
             {kOutput, output},
             {kKept, kept}},
            1);
    return output;
  }

  /// Forward and backward of the last block are one op: its output is the loss.
  void head(Sweep& s) {
    const int b = last_block();
    const Buffers weights = fetch(block(b));
    if (s.first == 0) {
      update_late(b);
      update_late(0);  // the next forward wants them first
    }
    for (int mb = s.first; mb < s.end; ++mb) {
      s.dx[mb] = activation();
      const BufferId loss = new_loss();
      const Buffers gradients = contributions(b);
      Bindings operands{{kWeights, weights},          {kInput, s.x[mb]},
                        {kBatch, s.batch[mb].device}, {kControl, catalog_.control},
                        {kInputGradient, s.dx[mb]},   {kLoss, loss},
                        {kGradients, gradients}};
      if (setup_.keeps_logits) {
        operands.emplace_back(kKept, transient(catalog_.logits, setup_.logits));
        compute(OpId::kHeadTrainKeep, b, mb, std::move(operands), 3);
      } else {
        compute(OpId::kHeadTrain, b, mb, std::move(operands), setup_.logits > 0 ? 4 : 3);
      }
      losses_.push_back(loss_on_host({.micro_batch = mb}, loss));  // an update may ask for it
      collect(b, mb, gradients);
    }
    if (!is_last(s)) return;
    use_late(b);
    use_late(0);  // only its forward reads them
  }

  void backward(Sweep& s) {
    for (int b = last_block() - 1; b > 0; --b) {
      const Buffers weights = fetch(block(b));
      if (s.first == 0) update_late(b);
      for (int mb = s.first; mb < s.end; ++mb) {
        const BufferId dy = std::exchange(s.dx[mb], activation());
        Bindings operands{{kWeights, weights},          {kInput, restore(b, mb, s.saved[{b, mb}])},
                          {kBatch, s.batch[mb].device}, {kHostBatch, s.batch[mb].host},
                          {kOutputGradient, dy},        {kInputGradient, s.dx[mb]}};
        if (setup_.keeps(b)) {
          operands.emplace_back(kKept, s.kept[{b, mb}]);
          backward_op(OpId::kLayerBackwardKept, b, mb, std::move(operands), 2);
        } else {
          backward_op(OpId::kLayerBackward, b, mb, std::move(operands), 3);
        }
      }
      if (is_last(s)) use_late(b);
    }
    for (int mb = s.first; mb < s.end; ++mb) {
      backward_op(OpId::kEmbedBackward, 0, mb,
                  {{kBatch, s.batch[mb].device}, {kOutputGradient, s.dx[mb]}}, 3);
    }
  }

  /// The input of a block where it waits for backward: where it is, in host memory, on nvme.
  BufferId save(int b, int mb, BufferId input) {
    const Where where{.segment = block(b).segments.front(), .micro_batch = mb};
    BufferId at = input;
    if (setup_.saves_activations_on_host()) {
      at = moved(OpId::kOffloadActivation, where, at, catalog_.host_activations);
    }
    if (setup_.homes.offload_activation == ActivationHome::kNvme) {
      at = moved(OpId::kWriteActivation, where, at, catalog_.disk_activations);
    }
    return at;
  }

  /// The way back: the input of a block where the compute lane can read it.
  BufferId restore(int b, int mb, BufferId saved) {
    const Where where{.segment = block(b).segments.front(), .micro_batch = mb};
    const bool host = setup_.saves_activations_on_host();
    BufferId at = saved;
    if (setup_.homes.offload_activation == ActivationHome::kNvme) {
      at = moved(OpId::kReadActivation, where, at,
                 host ? catalog_.host_activations : catalog_.activations);
    }
    if (!host) return at;
    return moved(OpId::kFetchActivation, where, at, catalog_.activations);
  }

  /// An op that computes the gradients of its block's segments, and where they go from there.
  void backward_op(OpId id, int b, int mb, Bindings operands, double forwards) {
    const Buffers gradients = contributions(b);
    operands.emplace_back(kGradients, gradients);
    compute(id, b, mb, std::move(operands), forwards);
    collect(b, mb, gradients);
  }

  void collect(int b, int mb, const Buffers& contributions) {
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      const int s = block(b).segments[i];
      const bool whole = collected({.segment = s, .micro_batch = mb}, b, contributions[i]);
      if (!whole || !arriving()) continue;
      if (!record_) begin_update();
      update(s);
    }
  }

  bool arriving() const { return setup_.update == Update::kArriving; }

  /// What is known of the step's update when the first gradient is whole: all but the others.
  void begin_update() {
    record_ = new_record();
    op(OpId::kBeginUpdate, {},
       {{kControl, catalog_.control}, {kLoss, losses_}, {kRecord, *record_}});
  }

  void end_update() {
    op(OpId::kEndUpdate, {}, {{kControl, catalog_.control}, {kLoss, losses_}, {kNorms, norms()}});
  }

  /// From losses and norms: learning rate, clip factor, skip or not. All that follows reads it.
  void decide() {
    const bool leaves = applies_ != Applies::kOwn;
    record_ = leaves && !setup_.clips_segments ? catalog_.pending_records.front() : new_record();
    op(OpId::kDecide, {},
       {{kControl, catalog_.control}, {kLoss, losses_}, {kNorms, norms()}, {kRecord, *record_}});
    for (int s = 0; leaves && setup_.clips_segments && s < segments(); ++s) {
      decide(s, catalog_.pending_records[static_cast<std::size_t>(s)]);
    }
  }

  void decide(int s, BufferId record) {
    op(OpId::kDecideSegment, {.segment = s},
       {{kStepRecord, *record_},
        {kNorms, norms()[static_cast<std::size_t>(s)]},
        {kRecord, record}});
  }

  /// Of a whole segment.
  void update(int s) {
    BufferId record = *record_;
    if (setup_.decides_by_segment()) {
      record = new_record();
      decide(s, record);
    }
    for (int c = 0; c < chunks(s); ++c) {
      const Where where{.segment = s, .chunk = c};
      UpdateWriter::update(where, chunk_gradient(where), record);
    }
  }

  /// New weights of what the step before left, just before this one's gradients take its place.
  /// They wait: this step's forward and backward are on the old ones.
  void update_late(int b) {
    if (applies_ != Applies::kLast) return;
    for (const int s : block(b).segments) {
      Buffers& fresh = fresh_[static_cast<std::size_t>(s)];
      for (int c = static_cast<int>(fresh.size()); c < chunks(s); ++c) {
        const Where where{.segment = s, .chunk = c};
        fresh.push_back(update_apart(where, {home_gradient(where)}, taken_record(s)));
      }
    }
  }

  /// Nobody reads the old ones any more.
  void use_late(int b) {
    for (const int s : block(b).segments) {
      const Buffers fresh = std::exchange(fresh_[static_cast<std::size_t>(s)], {});
      for (int c = 0; c < static_cast<int>(fresh.size()); ++c) {
        bring_weights_home({.segment = s, .chunk = c}, fresh[static_cast<std::size_t>(c)],
                           taken_record(s));
      }
    }
  }

  const Applies applies_;
  Buffers losses_;                  // by micro-batch
  std::optional<BufferId> record_;  // of the step
  std::vector<Buffers> fresh_;      // by segment and chunk: of a late update, on their way
};

/// By itself: nobody reads the old weights meanwhile.
class Drain : public UpdateWriter {
 public:
  Drain(const Setup& setup, const Catalog& catalog) : UpdateWriter("drain", setup, catalog) {}

  std::shared_ptr<const prefetch::Program> write() {
    take_records();
    for (int s = 0; s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) {
        const Where where{.segment = s, .chunk = c};
        update(where, {home_gradient(where)}, taken_record(s));
      }
    }
    return finish();
  }
};

}  // namespace

std::shared_ptr<const prefetch::Program> step_program(const Setup& setup, const Catalog& catalog,
                                                      Applies applies) {
  return Step(setup, catalog, applies).write();
}

std::shared_ptr<const prefetch::Program> drain_program(const Setup& setup, const Catalog& catalog) {
  return Drain(setup, catalog).write();
}

}  // namespace sluice::schedule
