#include "engine/train/op_bytes.h"

namespace sluice::train {

using executor::OpContext;
using prefetch::BufferId;

namespace {

prefetch::Tier tier_of(const OpContext& context, BufferId id, const memory::SlotMemory& memory) {
  return memory.pools()[context.program.info(id).pool].tier;
}

std::vector<std::byte*> addresses(const OpContext& context, const std::vector<BufferId>& ids,
                                  const memory::SlotMemory& memory) {
  std::vector<std::byte*> out;
  for (const BufferId id : ids) {
    const bool nvme = tier_of(context, id, memory) == prefetch::Tier::kNvme;
    out.push_back(nvme ? nullptr : address(context, id, memory));
  }
  return out;
}

}  // namespace

std::byte* address(const OpContext& context, BufferId id, const memory::SlotMemory& memory) {
  const prefetch::BufferTable& table = context.program.table(id);
  return memory.address(table.info(id).pool, context.slot(id)) + table.offset(id);
}

DriveBytes drive_bytes(const OpContext& context, BufferId id, const memory::SlotMemory& memory) {
  const prefetch::BufferTable& table = context.program.table(id);
  const prefetch::Buffer& buffer = table.info(id);
  return {memory.extent(buffer.pool, context.slot(id)), table.offset(id), buffer.bytes};
}

OpBytes resolve(const OpContext& context, const memory::SlotMemory& memory) {
  OpBytes op;
  op.id = schedule::id_of(context.op);
  op.where = context.op.where;
  op.tag = context.tag;
  op.reads = addresses(context, context.op.reads, memory);
  op.writes = addresses(context, context.op.writes, memory);
  if (const auto& predicate = context.op.predicate) {
    op.record = reinterpret_cast<const Record*>(address(context, predicate->record, memory));
  }
  return op;
}

}  // namespace sluice::train
