#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "engine/schedule/programs.h"
#include "engine/schedule/writer.h"

namespace sluice::schedule {
namespace {

class Step : public ProgramWriter {
 public:
  Step(const Setup& setup, const Catalog& catalog)
      : ProgramWriter("step", setup, catalog),
        gradients_(static_cast<std::size_t>(segments())),
        contributions_left_(static_cast<std::size_t>(segments())),
        losses_(static_cast<std::size_t>(setup.micro_batches)),
        norms_(static_cast<std::size_t>(segments())) {
    for (int s = 0; s < segments(); ++s) {
      contributions_left_[static_cast<std::size_t>(s)] =
          setup.micro_batches * uses_of(setup.model, s);
    }
  }

  std::shared_ptr<const prefetch::Program> write() {
    const auto micro_batches = static_cast<int>(setup_.micro_batches);
    const auto together = static_cast<int>(setup_.sweep);
    for (int first = 0; first < micro_batches; first += together) {
      std::vector<int> group(static_cast<std::size_t>(std::min(together, micro_batches - first)));
      std::iota(group.begin(), group.end(), first);
      sweep(group);
    }
    decide();
    for (int s = 0; s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) update({.segment = s, .chunk = c});
    }
    return finish();
  }

 private:
  using ByMicroBatch = std::map<int, BufferId>;

  /// Forward and backward of these micro-batches, block by block.
  void sweep(const std::vector<int>& micro_batches) {
    const int head = blocks() - 1;
    ByMicroBatch batch, x;
    std::vector<ByMicroBatch> saved(static_cast<std::size_t>(blocks()));
    for (const int mb : micro_batches) batch[mb] = x[mb] = fetch_batch(mb);
    for (int b = 0; b < head; ++b) {
      const Buffers weights = fetch(block(b));
      for (const int mb : micro_batches) {
        x[mb] = setup_.keeps(b) ? forward_keeping(b, weights, x[mb], mb)
                                : forward(b, weights, x[mb], mb);
        if (b + 1 < head) saved[static_cast<std::size_t>(b) + 1][mb] = save(b + 1, mb, x[mb]);
      }
    }

    ByMicroBatch dx;
    const Buffers head_weights = fetch(block(head));
    for (const int mb : micro_batches) {
      dx[mb] = activation();
      const BufferId loss = transient(catalog_.records, sizes_of(setup_).record);
      losses_[static_cast<std::size_t>(mb)] = loss;
      backward(OpId::kHeadTrain, head, mb, head_weights + Buffers{x[mb], batch[mb]},
               {dx[mb], loss});
    }
    for (int b = head - 1; b > 0; --b) {
      const Buffers weights = fetch(block(b));
      for (const int mb : micro_batches) {
        const BufferId input = restore(b, mb, saved[static_cast<std::size_t>(b)][mb]);
        const Buffers reads = weights + Buffers{input, dx[mb]};
        dx[mb] = activation();
        if (setup_.keeps(b)) {
          backward(OpId::kLayerBackwardKept, b, mb, reads + Buffers{kept(b, mb)}, {dx[mb]});
        } else {
          backward(OpId::kLayerBackward, b, mb, reads, {dx[mb]});
        }
      }
    }
    for (const int mb : micro_batches) {
      backward(OpId::kEmbedBackward, 0, mb, {batch[mb], dx[mb]}, {});
    }
  }

  BufferId& kept(int b, int mb) { return kept_[{b, mb}]; }

  BufferId forward_keeping(int b, const Buffers& weights, BufferId input, int mb) {
    const BufferId output = activation();
    kept(b, mb) = transient(catalog_.kept, sizes_of(setup_).kept);
    compute(OpId::kLayerForwardKeep, b, mb, weights + Buffers{input}, {output, kept(b, mb)},
            forward_flops(b));
    return output;
  }

  /// The input of a block where it waits for backward.
  BufferId save(int b, int mb, BufferId input) {
    if (!setup_.saves_activations()) return input;
    const Where where{.segment = block(b).segments.front(), .micro_batch = mb};
    const bool disk = setup_.homes.offload_activation == ActivationHome::kNvme;
    BufferId at = input;
    if (separate()) {
      at = moved(OpId::kOffloadActivation, LaneKind::kDeviceToHost, where, at,
                 catalog_.host_activations);
    }
    if (!disk) return at;
    return moved(OpId::kWriteActivation, LaneKind::kNvmeWrite, where, at,
                 catalog_.disk_activations);
  }

  /// The way back: the input of a block where the compute lane can read it.
  BufferId restore(int b, int mb, BufferId saved) {
    if (!setup_.saves_activations()) return saved;
    const Where where{.segment = block(b).segments.front(), .micro_batch = mb};
    const bool disk = setup_.homes.offload_activation == ActivationHome::kNvme;
    BufferId at = saved;
    if (disk) {
      at = moved(OpId::kReadActivation, LaneKind::kNvmeRead, where, at,
                 separate() ? catalog_.host_activations : catalog_.activations);
    }
    if (!separate()) return at;
    return moved(OpId::kFetchActivation, LaneKind::kHostToDevice, where, at, catalog_.activations);
  }

  /// A compute op that writes the gradients of its block's segments, and where they go from there.
  void backward(OpId id, int b, int mb, const Buffers& reads, const Buffers& writes) {
    Buffers contributions;
    for (const int s : block(b).segments) contributions.push_back(contribution(s));
    // A backward of twice the forward's size, and a forward: the head's own, a layer's again.
    const double forwards = id == OpId::kLayerBackwardKept ? 2 : 3;
    compute(id, b, mb, reads, writes + contributions, forwards * forward_flops(b));
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      collect(block(b).segments[i], b, mb, contributions[i]);
    }
  }

  bool at_device() const { return setup_.homes.offload_gradient == GradientHome::kNone; }
  LaneKind gradient_lane() const { return at_device() ? LaneKind::kCompute : LaneKind::kCpu; }

  /// Where the compute lane writes the gradient of one use of a segment.
  BufferId contribution(int s) {
    const Bytes bytes = segment_bytes(s);
    const bool final = !sums_gradient(setup_, s) && (at_device() || !separate());
    return transient(final ? catalog_.gradients.at(bytes) : catalog_.contributions.at(bytes),
                     bytes);
  }

  /// A contribution becomes the segment's gradient, or is added to it, in the order of
  /// micro-batches.
  void collect(int s, int b, int mb, BufferId contribution) {
    const Where where{.segment = s, .micro_batch = mb};
    auto& uses = gradients_[static_cast<std::size_t>(s)];
    if (!sums_gradient(setup_, s)) {
      uses[b] = offload(where, contribution, catalog_.gradients);
      norm(s, uses[b]);
      return;
    }
    const BufferId addend = offload(where, contribution, catalog_.staged);
    const Bytes sum_bytes = setup_.segment_elems(s) * size_of(DType::kF32);
    const bool first = !uses.contains(b);
    if (first) uses[b] = transient(catalog_.gradients.at(sum_bytes), sum_bytes);
    Buffers reads{addend};
    if (!first) reads.push_back(uses[b]);
    op(OpId::kAccumulate, gradient_lane(), where, reads, {uses[b]},
       {.bytes = static_cast<double>(2 * sum_bytes)});
    if (--contributions_left_[static_cast<std::size_t>(s)] > 0) return;
    // The embedding's sum comes first: it belongs to the block with the lower number.
    const BufferId total = uses.begin()->second;
    if (uses.size() > 1) {
      op(OpId::kAddUses, gradient_lane(), {.segment = s}, {total, uses.rbegin()->second}, {total},
         {.bytes = static_cast<double>(3 * sum_bytes)});
    }
    norm(s, total);
  }

  /// On the device, or copied to the host, as the gradient's home says.
  BufferId offload(Where where, BufferId contribution, const PoolBySize& pools) {
    if (at_device() || !separate()) return contribution;
    const Bytes bytes = segment_bytes(where.segment);
    const BufferId host = transient(pools.at(bytes), bytes);
    op(OpId::kOffloadGradient, LaneKind::kDeviceToHost, where, {contribution}, {host},
       {.bytes = static_cast<double>(bytes)});
    return host;
  }

  void norm(int s, BufferId gradient) {
    const Bytes bytes = setup_.segment_elems(s) / kGrainElems * sizeof(double);
    BufferId& norms = norms_[static_cast<std::size_t>(s)];
    norms = transient(catalog_.norms, bytes);
    op(OpId::kNorm, gradient_lane(), {.segment = s}, {gradient}, {norms},
       {.bytes = static_cast<double>(setup_.segment_elems(s) * 4)});
  }

  void decide() {
    record_ = transient(catalog_.records, sizes_of(setup_).record);
    op(OpId::kDecide, LaneKind::kControl, {}, Buffers{catalog_.control} + losses_ + norms_,
       {catalog_.control, record_});
  }

  void update(Where where) {
    const BufferId state = read_state(where);
    const BufferId gradient = gradient_chunk(where);
    const BufferId fresh = fresh_param(where);
    op_if({record_}, OpId::kAdam, LaneKind::kCpu, where, {state, gradient}, {state, fresh},
          {.bytes = static_cast<double>(chunk_elems(where) * zero::kUpdateBytesPerElem)});
    write_state(where, state, {record_});
    publish(where, fresh, {record_});
  }

  /// The gradient where the optimizer can read it: the segment's own buffer on the host, or a copy
  /// of one chunk of it.
  BufferId gradient_chunk(Where where) {
    const auto s = static_cast<std::size_t>(where.segment);
    const BufferId gradient = gradients_[s].begin()->second;
    if (!at_device() || !separate()) return gradient;
    const Bytes bytes = chunk_elems(where) * size_of(gradient_dtype(setup_, where.segment));
    const BufferId copy = transient(catalog_.host_chunks.at(bytes), bytes);
    op_if({record_}, OpId::kOffloadGradient, LaneKind::kDeviceToHost, where, {gradient}, {copy},
          {.bytes = static_cast<double>(bytes)});
    return copy;
  }

  std::vector<std::map<int, BufferId>> gradients_;  // by segment, then by the block that uses it
  std::vector<std::int64_t> contributions_left_;    // by segment
  std::map<std::pair<int, int>, BufferId> kept_;    // by kept block and micro-batch
  Buffers losses_;                                  // by micro-batch
  Buffers norms_;                                   // by segment: the global order of grains
  BufferId record_ = 0;
};

}  // namespace

std::shared_ptr<const prefetch::Program> step_program(const Setup& setup, const Catalog& catalog) {
  return Step(setup, catalog).write();
}

}  // namespace sluice::schedule
