#include "engine/train/conductor.h"

#include <utility>

#include "engine/base/error.h"

namespace sluice::train {

using executor::OpContext;
using schedule::Operand;
using schedule::Runner;

Ticket Conductor::start(const OpContext& context) {
  // Deciding here is enough: whatever writes the record has completed before this op starts.
  if (!lets_run(context, memory_)) return {};
  OpBytes op = resolve(context, memory_);
  switch (schedule::row_of(op.id).runner) {
    case Runner::kModel:
      return streams_.run(context, [this, op = op.local()] { compute_.run(op); });
    case Runner::kArithmetic:
      return arithmetic(context, std::move(op));
    case Runner::kHost:
      host_.run(op);
      return {};
    case Runner::kCopyToDevice:
      return copy(h2d_, op, h2d_bytes_);
    case Runner::kCopyToHost:
      return copy(d2h_, op, d2h_bytes_);
    case Runner::kReadDrive:
      return read(context, op);
    case Runner::kWriteDrive:
      return write(context, op);
    case Runner::kReadModel:
      return host_.read_first_values(op);
    case Runner::kSave:
      save(op);
      return {};
    case Runner::kCheckpoint:
      saver_.run(op, nvme_written_);
      return {};
  }
  throw Error(Errc::kLogic, "an op that nobody runs");
}

/// By the device where the op's lane is one of its streams, else by the host.
Ticket Conductor::arithmetic(const OpContext& context, OpBytes op) {
  if (streams_.has(context.op.lane)) {
    return streams_.run(context, [this, op = std::move(op)] { arithmetic_.run(op, device_); });
  }
  arithmetic_.run(op, optimizer_);
  return {};
}

Ticket Conductor::copy(gpu::Stream& stream, const OpBytes& op, std::atomic<Bytes>& counted) {
  const auto to = op[Operand::kTarget];
  counted += to.size();
  return stream.copy(to.data(), op[Operand::kSource].data(), to.size()).ticket();
}

Ticket Conductor::read(const OpContext& context, const OpBytes& op) {
  const DriveBytes from = drive_bytes(context, Operand::kSource, memory_);
  const auto to = op[Operand::kTarget];  // the state's may be shorter
  nvme_read_ += to.size();
  return memory_.store().read(from.extent, from.offset, to);
}

Ticket Conductor::write(const OpContext& context, const OpBytes& op) {
  const DriveBytes to = drive_bytes(context, Operand::kTarget, memory_);
  nvme_written_ += to.bytes;
  return memory_.store().write(to.extent, to.offset, op[Operand::kSource]);
}

/// The master weights of one chunk, which come first in its state, or what they were rounded to.
void Conductor::save(const OpBytes& op) {
  const auto& chunk = setup_.chunks[index(op.where.segment)][index(op.where.chunk)];
  const bool rounded = op.id == schedule::OpId::kSaveWeights;
  if (rounded && size_of(setup_.compute) == sizeof(std::uint16_t)) {
    return writer_->write_rounded(op.where.segment, chunk.first_elem,
                                  op.values<const std::uint16_t>(Operand::kWeights));
  }
  const auto values = op.values<const float>(rounded ? Operand::kWeights : Operand::kState);
  writer_->write(op.where.segment, chunk.first_elem, values.first(chunk.elems));
}

}  // namespace sluice::train
