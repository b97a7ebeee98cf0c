#include "engine/train/conductor.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/schedule/catalog.h"

namespace sluice::train {

using executor::OpContext;
using schedule::OpId;

Ticket Conductor::start(const OpContext& context) {
  OpBytes op = resolve(context, memory_);
  // Deciding here is enough: whatever writes the record has completed before this op starts.
  if (op.skipped()) return {};
  switch (op.id) {
    case OpId::kFetchBatch:
    case OpId::kFetchWeights:
    case OpId::kFetchActivation:
    case OpId::kPublish:
      return copy(h2d_, context, op);
    case OpId::kOffloadGradient:
    case OpId::kOffloadActivation:
      return copy(d2h_, context, op);
    case OpId::kReadWeights:
    case OpId::kReadState:
    case OpId::kReadActivation:
      return read(context, op);
    case OpId::kWriteWeights:
    case OpId::kWriteState:
    case OpId::kWriteActivation:
      return write(context, op);
    case OpId::kSave:
      save(op);
      return {};
    default:
      break;
  }
  if (context.op.lane != schedule::lane_of(schedule::LaneKind::kCompute)) {
    host_.run(op);
    return {};
  }
  SLUICE_CHECK(context.stream_waits.empty(), kLogic, "there is one stream of compute");
  return compute_
      .run([this, op = std::move(op)] {
        if (ComputeOps::owns(op.id)) {
          compute_ops_.run(op);
        } else {
          host_.run(op);  // sums and norms of gradients that stay on the device
        }
      })
      .ticket();
}

Ticket Conductor::copy(gpu::Stream& stream, const OpContext& context, const OpBytes& op) {
  const Bytes bytes = context.program.info(context.op.writes.front()).bytes;
  const std::byte* from = op.reads[0];
  // A chunk of a gradient that stays on the device: its part of the segment's buffer.
  if (op.id == OpId::kOffloadGradient && op.where.chunk >= 0) {
    const auto s = static_cast<std::size_t>(op.where.segment);
    const auto& chunk = setup_.chunks[s][static_cast<std::size_t>(op.where.chunk)];
    from += chunk.first_elem * size_of(schedule::gradient_dtype(setup_, op.where.segment));
  }
  return stream.copy(op.writes[0], from, bytes).ticket();
}

Ticket Conductor::read(const OpContext& context, const OpBytes& op) {
  const DriveBytes from = drive_bytes(context, context.op.reads.front(), memory_);
  nvme_read_ += from.bytes;
  return memory_.store().read(from.extent, from.offset, {op.writes[0], from.bytes});
}

Ticket Conductor::write(const OpContext& context, const OpBytes& op) {
  const DriveBytes to = drive_bytes(context, context.op.writes.front(), memory_);
  nvme_written_ += to.bytes;
  return memory_.store().write(to.extent, to.offset, {op.reads[0], to.bytes});
}

void Conductor::save(const OpBytes& op) {
  const auto& chunk = setup_.chunks[static_cast<std::size_t>(op.where.segment)]
                                   [static_cast<std::size_t>(op.where.chunk)];
  writer_.write(op.where.segment, chunk.first_elem,
                {reinterpret_cast<const float*>(op.reads[0]), chunk.elems});
}

}  // namespace sluice::train
