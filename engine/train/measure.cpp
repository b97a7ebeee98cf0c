#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/memory/host_memory.h"
#include "engine/schedule/catalog.h"
#include "engine/train/compute_ops.h"

namespace sluice::train {
namespace {

using schedule::OpId;
using schedule::Setup;

/// Zeroed memory outside every tier, for one op; begun as slots are.
class Scratch {
 public:
  std::byte* take(Bytes n) {
    std::byte* piece = pieces_.emplace_back(std::make_unique<std::byte[]>(n + kAlignment)).get();
    const auto at = reinterpret_cast<std::uintptr_t>(piece);
    return piece + (round_up(at, kAlignment) - at);
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
};

/// The op on scratch buffers, listed as the program lists them.
OpBytes scratch_op(const Setup& setup, const shape::Block& block, OpId id, Scratch& scratch) {
  const schedule::Sizes sizes = schedule::sizes_of(setup);
  OpBytes op;
  op.id = id;
  op.where.segment = block.segments.front();
  const auto segments = [&](std::vector<std::byte*>& list) {
    for (const int s : block.segments) {
      list.push_back(scratch.take(setup.segment_elems(s) * size_of(setup.compute)));
    }
  };
  const auto activation = [&] { return scratch.take(sizes.activation); };
  const auto batch = [&] { return scratch.take(sizes.batch); };
  switch (id) {
    case OpId::kEmbedForward:
      segments(op.reads);
      op.reads.push_back(batch());
      op.writes = {activation()};
      break;
    case OpId::kEmbedBackward:
      op.reads = {batch(), activation()};
      segments(op.writes);
      break;
    case OpId::kLayerForward:
      segments(op.reads);
      op.reads.push_back(activation());
      op.writes = {activation()};
      break;
    case OpId::kLayerForwardKeep:
      segments(op.reads);
      op.reads.push_back(activation());
      op.writes = {activation(), scratch.take(sizes.kept)};
      break;
    case OpId::kLayerBackward:
    case OpId::kLayerBackwardKept:
      segments(op.reads);
      op.reads.push_back(activation());
      op.reads.push_back(activation());
      if (id == OpId::kLayerBackwardKept) op.reads.push_back(scratch.take(sizes.kept));
      op.writes = {activation()};
      segments(op.writes);
      break;
    default:  // the head
      segments(op.reads);
      op.reads.push_back(activation());
      op.reads.push_back(batch());
      if (id == OpId::kHeadTrain) op.writes = {activation()};
      op.writes.push_back(scratch.take(sizes.record));
      if (id == OpId::kHeadTrain) segments(op.writes);
  }
  return op;
}

std::vector<OpId> ops_of(const Setup& setup, shape::BlockKind kind) {
  switch (kind) {
    case shape::BlockKind::kEmbed:
      return {OpId::kEmbedForward, OpId::kEmbedBackward};
    case shape::BlockKind::kLayer:
      if (!setup.may_keep()) return {OpId::kLayerForward, OpId::kLayerBackward};
      return {OpId::kLayerForward, OpId::kLayerBackward, OpId::kLayerForwardKeep,
              OpId::kLayerBackwardKept};
    case shape::BlockKind::kHead:
      return {OpId::kHeadTrain, OpId::kHeadLoss};
  }
  return {};
}

/// A first run of an op this long tells how long it takes; of a shorter one, the shortest of three.
constexpr double kLongOp = 0.25;  // seconds

double seconds_of(ComputeOps& ops, const OpBytes& op) {
  const Nanos begin = now_ns();
  ops.run(op);
  return to_seconds(now_ns() - begin);
}

}  // namespace

Measured measure_ops(const Setup& setup, const Numerics& numerics) {
  Measured measured;
  bool layer_done = false;  // all layers have one shape
  for (const shape::Block& block : setup.model.blocks) {
    if (block.kind == shape::BlockKind::kLayer && std::exchange(layer_done, true)) continue;
    for (const OpId id : ops_of(setup, block.kind)) {
      Scratch scratch;
      const OpBytes op = scratch_op(setup, block, id, scratch);
      tensor::Workspace arena = tensor::Workspace::measuring(memory::host_memory().available);
      ComputeOps ops(setup, numerics, arena);
      double seconds = seconds_of(ops, op);
      for (int again = 0; again < 2 && seconds < kLongOp; ++again) {
        seconds = std::min(seconds, seconds_of(ops, op));
      }
      measured.seconds[id] = seconds;
      const tensor::Usage used = arena.peak();
      measured.workspace.main = std::max(measured.workspace.main, used.main);
      measured.workspace.side = std::max(measured.workspace.side, used.side);
    }
  }
  return measured;
}

}  // namespace sluice::train
