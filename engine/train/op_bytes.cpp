#include "engine/train/op_bytes.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "gpu/local.h"

namespace sluice::train {

using executor::OpContext;
using memory::SlotMemory;
using prefetch::BufferId;
using schedule::Operand;

namespace {

OpBytes::Bytes bytes_of(const OpContext& context, BufferId id, const SlotMemory& memory) {
  const prefetch::Buffer& buffer = context.program.info(id);
  if (buffer.pool == prefetch::kNoPool) return {};
  const bool nvme = memory.pools()[buffer.pool].tier == prefetch::Tier::kNvme;
  return {nvme ? nullptr : address(context, id, memory), buffer.bytes};
}

}  // namespace

std::byte* address(const OpContext& context, BufferId id, const SlotMemory& memory) {
  const prefetch::BufferTable& table = context.program.table(id);
  return memory.address(table.info(id).pool, context.slot(id)) + table.offset(id);
}

void OpBytes::bind(Operand name, Bytes bytes) {
  names_.push_back(name);
  bytes_.push_back(bytes);
}

std::span<const OpBytes::Bytes> OpBytes::all(Operand name) const {
  const auto begin = std::ranges::find(names_, name);
  const auto end = std::find_if(begin, names_.end(), [&](Operand other) { return other != name; });
  return std::span(bytes_).subspan(static_cast<std::size_t>(begin - names_.begin()),
                                   static_cast<std::size_t>(end - begin));
}

OpBytes::Bytes OpBytes::operator[](Operand name) const {
  const auto found = all(name);
  SLUICE_CHECK(found.size() == 1, kLogic,
               fmt::format("'{}' has {} operands of name {}", schedule::kind_of(id).name,
                           found.size(), static_cast<int>(name)));
  return found.front();
}

OpBytes OpBytes::local() const {
  OpBytes op = *this;
  for (Bytes& bytes : op.bytes_) bytes = gpu::local(bytes);
  return op;
}

OpBytes resolve(const OpContext& context, const SlotMemory& memory) {
  const prefetch::Op& op = context.op;
  OpBytes bytes;
  bytes.id = schedule::id_of(op);
  bytes.where = op.where;
  bytes.tag = context.tag;
  for (std::size_t i = 0; i < op.reads.size(); ++i) {
    bytes.bind(schedule::read_name(op, i), bytes_of(context, op.reads[i], memory));
  }
  const auto read_names = std::span(op.names).first(op.reads.size());
  for (std::size_t i = 0; i < op.writes.size(); ++i) {
    const Operand name = schedule::write_name(op, i);
    const bool updated = std::ranges::count(read_names, static_cast<std::uint8_t>(name)) > 0;
    if (!updated) bytes.bind(name, bytes_of(context, op.writes[i], memory));
  }
  return bytes;
}

bool lets_run(const OpContext& context, const SlotMemory& memory) {
  if (!context.op.predicate) return true;
  const auto& [id, field] = *context.op.predicate;
  const auto record = OpBytes::as<const Record>(bytes_of(context, id, memory));
  switch (static_cast<schedule::RecordField>(field)) {
    case schedule::RecordField::kApplied:
      return record.front().applied;
  }
  throw Error(Errc::kLogic,
              fmt::format("{}: no field {} in the record", describe(context.op), field));
}

namespace {

DriveBytes drive_bytes(const OpContext& context, BufferId id, const SlotMemory& memory) {
  const prefetch::BufferTable& table = context.program.table(id);
  const prefetch::Buffer& buffer = table.info(id);
  return {memory.extent(buffer.pool, context.slot(id)), table.offset(id), buffer.bytes};
}

}  // namespace

DriveBytes drive_bytes(const OpContext& context, Operand name, const SlotMemory& memory) {
  return drive_bytes(context, schedule::buffer_of(context.op, name), memory);
}

std::string drive_place(const OpContext& context, const SlotMemory& memory) {
  std::string text;
  const auto add = [&](BufferId id) {
    const prefetch::PoolId pool = context.program.info(id).pool;
    if (pool == prefetch::kNoPool || memory.pools()[pool].tier != prefetch::Tier::kNvme) return;
    const DriveBytes at = drive_bytes(context, id, memory);
    if (!text.empty()) text += ", ";
    text += memory.store().where({at.extent.begin + at.offset, at.bytes});
  };
  for (const BufferId id : context.op.reads) add(id);
  for (const BufferId id : context.op.writes) add(id);
  return text;
}

}  // namespace sluice::train
