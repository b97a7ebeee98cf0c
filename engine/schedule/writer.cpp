#include "engine/schedule/writer.h"

#include <utility>

namespace sluice::schedule {

using enum Operand;

void ProgramWriter::op(OpId id, Where where, const Bindings& operands, Cost cost,
                       std::optional<BufferId> record) {
  prefetch::Op op = make_op(id, where, operands, cost);
  if (record) {
    op.predicate = {*record, static_cast<std::uint16_t>(RecordField::kApplied)};
  }
  program_->op(std::move(op));
}

BufferId ProgramWriter::moved(OpId id, Where where, BufferId from, prefetch::PoolId to,
                              std::optional<BufferId> record) {
  const Bytes bytes = program_->info(from).bytes;
  const BufferId copy = transient(to, bytes);
  op(id, where, {{kSource, from}, {kTarget, copy}}, {.bytes = static_cast<double>(bytes)}, record);
  return copy;
}

BufferId ProgramWriter::fetch(int segment) {
  BufferId at = catalog_.params[static_cast<std::size_t>(segment)];
  if (!setup_.streams_params()) return at;
  const Where where{.segment = segment};
  const Bytes bytes = segment_bytes(segment);
  const prefetch::PoolId device = catalog_.device_params.at(bytes);
  if (setup_.homes.offload_param == ParamHome::kNvme) {
    at = moved(OpId::kReadWeights, where, at,
               separate() ? catalog_.staged_params.at(bytes) : device);
    if (!separate()) return at;
  }
  return moved(OpId::kFetchWeights, where, at, device);
}

Buffers ProgramWriter::fetch(const shape::Block& block) {
  Buffers weights;
  for (const int segment : block.segments) weights.push_back(fetch(segment));
  return weights;
}

BufferId ProgramWriter::fetch_batch(int micro_batch) {
  const Bytes bytes = catalog_.sizes.batch;
  const Where where{.micro_batch = micro_batch};
  const BufferId host = transient(catalog_.host_batch, bytes);
  op(OpId::kLoadBatch, where, {{kBatch, host}}, {.bytes = static_cast<double>(bytes)});
  if (!separate()) return host;
  return moved(OpId::kFetchBatch, where, host, catalog_.device_batch);
}

void ProgramWriter::compute(OpId id, int b, int micro_batch, Bindings operands, double forwards) {
  operands.emplace_back(kWorkspace, catalog_.workspace);
  const double forward =
      shape::forward_flops(*setup_.model, block(b), setup_.micro_batch_size, setup_.seq_len);
  // Where names the block by its first segment; the handlers know the blocks.
  op(id, {.segment = block(b).segments.front(), .micro_batch = micro_batch}, operands,
     {.flops = forwards * forward});
}

BufferId ProgramWriter::forward(int b, const Buffers& weights, BufferId batch,
                                std::optional<BufferId> input, int micro_batch) {
  const BufferId output = activation();
  Bindings operands{{kWeights, weights}, {kBatch, batch}, {kOutput, output}};
  if (input) operands.emplace_back(kInput, *input);
  compute(input ? OpId::kLayerForward : OpId::kEmbedForward, b, micro_batch, std::move(operands),
          1);
  return output;
}

BufferId ProgramWriter::read_state(Where where) {
  if (setup_.homes.offload_optimizer == OptimizerHome::kCpu) return home_state(where);
  return moved(OpId::kReadState, where, home_state(where),
               catalog_.state_chunks.at(state_bytes(where)));
}

BufferId ProgramWriter::state_slot(Where where) {
  if (setup_.homes.offload_optimizer == OptimizerHome::kCpu) return home_state(where);
  const Bytes bytes = state_bytes(where);
  return transient(catalog_.state_chunks.at(bytes), bytes);
}

BufferId ProgramWriter::fresh_slot(Where where) {
  const bool written_at_home = setup_.homes.offload_param == ParamHome::kCpu ||
                               (setup_.homes.offload_param == ParamHome::kNone && !separate());
  if (written_at_home) return home_param(where);
  const Bytes bytes = fresh_bytes(where);
  return transient(catalog_.fresh.at(bytes), bytes);
}

void ProgramWriter::bring_home(Where where, BufferId state, BufferId fresh,
                               std::optional<BufferId> record) {
  if (state != home_state(where)) {
    op(OpId::kWriteState, where, {{kSource, state}, {kTarget, home_state(where)}},
       {.bytes = static_cast<double>(state_bytes(where))}, record);
  }
  if (fresh != home_param(where)) {
    const bool nvme = setup_.homes.offload_param == ParamHome::kNvme;
    op(nvme ? OpId::kWriteWeights : OpId::kPublish, where,
       {{kSource, fresh}, {kTarget, home_param(where)}},
       {.bytes = static_cast<double>(fresh_bytes(where))}, record);
  }
}

}  // namespace sluice::schedule
