#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/schedule/gradient_route.h"
#include "engine/schedule/programs.h"
#include "engine/schedule/updates.h"

namespace sluice::schedule {
namespace {

using enum Operand;

/// One training step. Each function appends ops in an order that is correct when they run one by
/// one; which of them there are follows from where the bytes live.
class Step : public UpdateWriter {
 public:
  Step(const Setup& setup, const Catalog& catalog, Applies applies)
      : UpdateWriter("step", setup, catalog),
        applies_(applies),
        gradients_(static_cast<std::size_t>(segments())),
        norms_(static_cast<std::size_t>(segments())),
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

  Buffers contributions(int b) {
    Buffers all;
    for (const int s : block(b).segments) all.push_back(contribution(s, b));
    return all;
  }

  void collect(int b, int mb, const Buffers& contributions) {
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      collect(block(b).segments[i], b, mb, contributions[i]);
    }
  }

  /// The gradient of a segment while the step collects it.
  struct Gradient {
    std::map<int, BufferId> sums = {};   // by the block that uses the segment
    std::optional<BufferId> later = {};  // a contribution that is added when the sum has begun
    std::int64_t collected = 0;          // contributions
    Buffers chunks = {};                 // parts of the whole, which the optimizer reads
  };

  const GradientRoute& route(int s) const { return catalog_.routes[static_cast<std::size_t>(s)]; }
  Gradient& gradient(int s) { return gradients_[static_cast<std::size_t>(s)]; }

  /// Where the compute lane writes the gradient of one use of a segment: on the device, or at home
  /// where that is the same memory and the gradient stays there as it is.
  BufferId contribution(int s, int b) {
    if (route(s).written_at_home()) return new_gradient(s, b);
    const bool at_home = waits(s, b) && route(s).staged() && !route(s).offloaded;
    const Bytes bytes = segment_bytes(s);
    return transient((at_home ? catalog_.staged : catalog_.contributions).at(bytes), bytes);
  }

  /// For the embedding's, at home.
  bool waits(int s, int b) const { return route(s).head_waits && b > 0; }

  /// A buffer at home for all of a segment's gradient by this block. Where updates are delayed it
  /// stays; of a tied segment's two that of the embedding, into which the other is added.
  BufferId new_gradient(int s, int b) {
    const bool whole = route(s).uses == 1 || b == 0;
    if (setup_.delays() && whole) return catalog_.pending[static_cast<std::size_t>(s)];
    const Bytes elem = size_of(route(s).dtype);
    const Bytes bytes = setup_.segment_elems(s) * elem;
    return transient(catalog_.gradients.at(bytes), bytes);
  }

  /// A contribution becomes the segment's gradient, or is added to it: micro-batch by micro-batch,
  /// each use of a tied segment in a sum of its own, or the head's when the embedding's is there.
  void collect(int s, int b, int mb, BufferId contribution) {
    const Where where{.segment = s, .micro_batch = mb};
    if (route(s).offloaded) {
      const Bytes bytes = segment_bytes(s);
      const BufferId to =
          route(s).summed ? transient(catalog_.staged.at(bytes), bytes) : new_gradient(s, b);
      copy(OpId::kOffloadGradient, where, contribution, to);
      contribution = to;
    }
    Gradient& of = gradient(s);
    if (!route(s).summed) {
      of.sums[b] = contribution;
    } else if (waits(s, b)) {
      of.later = contribution;
    } else {
      add(where, of.sums, b, contribution);
      if (of.later) add(where, of.sums, b, *of.later);
    }
    if (++of.collected == setup_.micro_batches * route(s).uses) complete(s);
  }

  void add(Where where, std::map<int, BufferId>& sums, int b, BufferId contribution) {
    const bool first = !sums.contains(b);
    if (first) sums[b] = new_gradient(where.segment, b);
    arithmetic(first ? OpId::kStartSum : OpId::kAccumulate, route(where.segment).home, where,
               {{kContribution, contribution}, {kSum, sums[b]}}, gradient_bytes(where.segment, 2));
  }

  /// All contributions are there.
  void complete(int s) {
    // The embedding's sum comes first: it belongs to the block with the lower number.
    const auto& sums = gradient(s).sums;
    const BufferId whole = sums.begin()->second;
    if (sums.size() > 1) {
      arithmetic(OpId::kAddUses, route(s).home, {.segment = s},
                 {{kSum, whole}, {kOtherUse, sums.rbegin()->second}}, gradient_bytes(s, 3));
    }
    const std::uint64_t elems = setup_.segment_elems(s);
    const Bytes elem = size_of(route(s).dtype);
    BufferId& norms = norms_[static_cast<std::size_t>(s)];
    const bool on_device = separate() && route(s).home == prefetch::Tier::kGpu;
    norms = transient(on_device ? catalog_.device_norms : catalog_.norms, norm_bytes(elems));
    arithmetic(OpId::kNorm, route(s).home, {.segment = s}, {{kGradient, whole}, {kNorms, norms}},
               {.bytes = static_cast<double>(elems * elem)});
    if (on_device) norms = moved(OpId::kOffloadNorms, {.segment = s}, norms, catalog_.norms);
    gradient(s).chunks = parts_of(s, whole);
    if (!arriving()) return;
    if (!record_) begin_update();
    update(s);
  }

  Buffers parts_of(int s, BufferId whole) {
    if (setup_.delays()) return catalog_.pending_chunks[static_cast<std::size_t>(s)];
    const Bytes elem = size_of(route(s).dtype);
    Buffers parts;
    for (const zero::Chunk& c : setup_.chunks[static_cast<std::size_t>(s)]) {
      parts.push_back(part_of(whole, c.first_elem * elem, c.elems * elem));
    }
    return parts;
  }

  /// Of fp32 sums.
  Cost gradient_bytes(int s, int times) const {
    return {.bytes = static_cast<double>(setup_.segment_elems(s) * size_of(DType::kF32)) * times};
  }

  bool arriving() const { return setup_.update == Update::kArriving; }

  /// What is known of the step's update when the first gradient is whole: all but the others.
  void begin_update() {
    record_ = new_record();
    op(OpId::kBeginUpdate, {},
       {{kControl, catalog_.control}, {kLoss, losses_}, {kRecord, *record_}});
  }

  void end_update() {
    op(OpId::kEndUpdate, {}, {{kControl, catalog_.control}, {kLoss, losses_}, {kNorms, norms_}});
  }

  /// From losses and norms: learning rate, clip factor, skip or not. All that follows reads it.
  void decide() {
    const bool leaves = applies_ != Applies::kOwn;
    record_ = leaves && !setup_.clips_segments ? catalog_.pending_records.front() : new_record();
    op(OpId::kDecide, {},
       {{kControl, catalog_.control}, {kLoss, losses_}, {kNorms, norms_}, {kRecord, *record_}});
    for (int s = 0; leaves && setup_.clips_segments && s < segments(); ++s) {
      decide(s, catalog_.pending_records[static_cast<std::size_t>(s)]);
    }
  }

  void decide(int s, BufferId record) {
    op(OpId::kDecideSegment, {.segment = s},
       {{kStepRecord, *record_}, {kNorms, norms_[static_cast<std::size_t>(s)]}, {kRecord, record}});
  }

  /// Of a whole segment.
  void update(int s) {
    BufferId record = *record_;
    if (setup_.decides_by_segment()) {
      record = new_record();
      decide(s, record);
    }
    for (int c = 0; c < chunks(s); ++c) {
      const BufferId chunk = gradient(s).chunks[static_cast<std::size_t>(c)];
      UpdateWriter::update({.segment = s, .chunk = c}, chunk, record);
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
        fresh.push_back(update_apart(where, home_gradient(where), taken_record(s)));
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
  std::vector<Gradient> gradients_;  // by segment
  Buffers losses_;                   // by micro-batch
  Buffers norms_;                    // by segment: the global order of grains
  std::optional<BufferId> record_;   // of the step
  std::vector<Buffers> fresh_;       // by segment and chunk: of a late update, on their way
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
        update(where, home_gradient(where), taken_record(s));
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
