#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/schedule/gradient_route.h"
#include "engine/schedule/programs.h"
#include "engine/schedule/writer.h"

namespace sluice::schedule {
namespace {

using enum Operand;

/// One training step. Each function appends ops in an order that is correct when they run one by
/// one; which of them there are follows from where the bytes live.
class Step : public ProgramWriter {
 public:
  Step(const Setup& setup, const Catalog& catalog)
      : ProgramWriter("step", setup, catalog),
        gradients_(static_cast<std::size_t>(segments())),
        norms_(static_cast<std::size_t>(segments())) {}

  std::shared_ptr<const prefetch::Program> write() {
    const auto micro_batches = static_cast<int>(setup_.micro_batches);
    const auto together = static_cast<int>(setup_.sweep);
    for (int first = 0; first < micro_batches; first += together) {
      sweep({first, std::min(first + together, micro_batches)});
    }
    if (arriving()) {
      end_update();
    } else {
      decide();
      for (int s = 0; s < segments(); ++s) update(s);
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
    for (int mb = s.first; mb < s.end; ++mb) {
      s.dx[mb] = activation();
      const BufferId loss = new_loss();
      const Buffers gradients = contributions(b);
      compute(OpId::kHeadTrain, b, mb,
              {{kWeights, weights},
               {kInput, s.x[mb]},
               {kBatch, s.batch[mb].device},
               {kControl, catalog_.control},
               {kInputGradient, s.dx[mb]},
               {kLoss, loss},
               {kGradients, gradients}},
              3);
      losses_.push_back(loss_on_host({.micro_batch = mb}, loss));  // an update may ask for it
      collect(b, mb, gradients);
    }
  }

  void backward(Sweep& s) {
    for (int b = last_block() - 1; b > 0; --b) {
      const Buffers weights = fetch(block(b));
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
    for (const int s : block(b).segments) all.push_back(contribution(s));
    return all;
  }

  void collect(int b, int mb, const Buffers& contributions) {
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      collect(block(b).segments[i], b, mb, contributions[i]);
    }
  }

  /// The gradient of a segment while the step collects it.
  struct Gradient {
    std::map<int, BufferId> sums = {};  // by the block that uses the segment
    std::int64_t collected = 0;         // contributions
    std::vector<BufferId> chunks = {};  // parts of the whole, which the optimizer reads
  };

  const GradientRoute& route(int s) const { return catalog_.routes[static_cast<std::size_t>(s)]; }
  Gradient& gradient(int s) { return gradients_[static_cast<std::size_t>(s)]; }

  /// Where the compute lane writes the gradient of one use of a segment.
  BufferId contribution(int s) {
    if (route(s).written_at_home()) return new_gradient(s);
    const Bytes bytes = segment_bytes(s);
    return transient(catalog_.contributions.at(bytes), bytes);
  }

  /// A buffer at home that holds all of a segment's gradient.
  BufferId new_gradient(int s) {
    const Bytes elem = size_of(route(s).dtype);
    const Bytes bytes = setup_.segment_elems(s) * elem;
    return transient(catalog_.gradients.at(bytes), bytes);
  }

  /// A contribution becomes the segment's gradient, or is added to it: micro-batch by micro-batch,
  /// each use of a tied segment in a sum of its own.
  void collect(int s, int b, int mb, BufferId contribution) {
    const Where where{.segment = s, .micro_batch = mb};
    if (route(s).offloaded) {
      const PoolBySize& to = route(s).summed ? catalog_.staged : catalog_.gradients;
      contribution = moved(OpId::kOffloadGradient, where, contribution, to.at(segment_bytes(s)));
    }
    auto& sums = gradient(s).sums;
    if (route(s).summed) {
      add(where, sums, b, contribution);
    } else {
      sums[b] = contribution;
    }
    if (++gradient(s).collected == setup_.micro_batches * route(s).uses) complete(s);
  }

  void add(Where where, std::map<int, BufferId>& sums, int b, BufferId contribution) {
    const bool first = !sums.contains(b);
    if (first) sums[b] = new_gradient(where.segment);
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
    for (const zero::Chunk& c : setup_.chunks[static_cast<std::size_t>(s)]) {
      gradient(s).chunks.push_back(part_of(whole, c.first_elem * elem, c.elems * elem));
    }
    if (!arriving()) return;
    if (!record_) begin_update();
    update(s);
  }

  /// Of fp32 sums.
  Cost gradient_bytes(int s, int times) const {
    return {.bytes = static_cast<double>(setup_.segment_elems(s) * size_of(DType::kF32)) * times};
  }

  bool arriving() const { return setup_.update == Update::kArriving; }
  BufferId new_record() { return transient(catalog_.records, catalog_.sizes.record); }

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
    record_ = new_record();
    op(OpId::kDecide, {},
       {{kControl, catalog_.control}, {kLoss, losses_}, {kNorms, norms_}, {kRecord, *record_}});
  }

  /// Of a whole segment.
  void update(int s) {
    BufferId record = *record_;
    if (setup_.decides_by_segment()) {
      record = new_record();
      op(OpId::kDecideSegment, {.segment = s},
         {{kStepRecord, *record_},
          {kNorms, norms_[static_cast<std::size_t>(s)]},
          {kRecord, record}});
    }
    for (int c = 0; c < chunks(s); ++c) update({.segment = s, .chunk = c}, record);
  }

  void update(Where where, BufferId record) {
    const bool on_device = setup_.updates_on_device();
    const prefetch::Tier tier = on_device ? prefetch::Tier::kGpu : prefetch::Tier::kCpu;
    const BufferId state = on_device ? home_state(where) : read_state(where);
    const BufferId fresh = fresh_slot(where, tier);
    arithmetic(OpId::kAdam, tier, where,
               {{kRecord, record},
                {kState, state},
                {kGradient, gradient_chunk(where, record)},
                {kFresh, fresh}},
               {.bytes = static_cast<double>(chunk(where).elems * zero::kUpdateBytesPerElem)},
               record);
    bring_home(where, state, fresh, record);
  }

  /// The gradient of one chunk where the optimizer can read it.
  BufferId gradient_chunk(Where where, BufferId record) {
    const BufferId at = gradient(where.segment).chunks[static_cast<std::size_t>(where.chunk)];
    if (!route(where.segment).copied_by_chunk) return at;
    const Bytes bytes = chunk(where).elems * size_of(route(where.segment).dtype);
    return moved(setup_.updates_on_device() ? OpId::kFetchGradient : OpId::kOffloadGradient, where,
                 at, catalog_.gradient_chunks.at(bytes), record);
  }

  std::vector<Gradient> gradients_;  // by segment
  Buffers losses_;                   // by micro-batch
  Buffers norms_;                    // by segment: the global order of grains
  std::optional<BufferId> record_;   // of the step
};

}  // namespace

std::shared_ptr<const prefetch::Program> step_program(const Setup& setup, const Catalog& catalog) {
  return Step(setup, catalog).write();
}

}  // namespace sluice::schedule
