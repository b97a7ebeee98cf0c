#include "engine/schedule/writer.h"

namespace sluice::schedule {

BufferId ProgramWriter::moved(OpId id, LaneKind lane, Where where, BufferId from,
                              prefetch::PoolId to) {
  const Bytes bytes = program_->info(from).bytes;
  const BufferId copy = transient(to, bytes);
  op(id, lane, where, {from}, {copy}, {.bytes = static_cast<double>(bytes)});
  return copy;
}

BufferId ProgramWriter::fetch(int segment) {
  const BufferId home = catalog_.params[static_cast<std::size_t>(segment)];
  if (!setup_.streams_params()) return home;
  const Where where{.segment = segment};
  const prefetch::PoolId device = catalog_.device_params.at(segment_bytes(segment));
  if (!params_on_nvme()) {
    return moved(OpId::kFetchWeights, LaneKind::kHostToDevice, where, home, device);
  }
  if (!separate()) return moved(OpId::kReadWeights, LaneKind::kNvmeRead, where, home, device);
  const BufferId staged = moved(OpId::kReadWeights, LaneKind::kNvmeRead, where, home,
                                catalog_.staged_params.at(segment_bytes(segment)));
  return moved(OpId::kFetchWeights, LaneKind::kHostToDevice, where, staged, device);
}

Buffers ProgramWriter::fetch(const shape::Block& block) {
  Buffers weights;
  for (const int segment : block.segments) weights.push_back(fetch(segment));
  return weights;
}

BufferId ProgramWriter::fetch_batch(int micro_batch) {
  const Bytes bytes = sizes_of(setup_).batch;
  const Where where{.micro_batch = micro_batch};
  const BufferId host = transient(catalog_.host_batch, bytes);
  op(OpId::kLoadBatch, LaneKind::kData, where, {}, {host}, {.bytes = static_cast<double>(bytes)});
  if (!separate()) return host;
  const BufferId device = transient(catalog_.device_batch, bytes);
  op(OpId::kFetchBatch, LaneKind::kHostToDevice, where, {host}, {device},
     {.bytes = static_cast<double>(bytes)});
  return device;
}

double ProgramWriter::forward_flops(int b) const {
  return shape::forward_flops(setup_.model, block(b), setup_.micro_batch_size, setup_.seq_len);
}

void ProgramWriter::compute(OpId id, int b, int micro_batch, const Buffers& reads,
                            const Buffers& writes, double flops) {
  // Where names the block by its first segment; the handlers know the blocks.
  op(id, LaneKind::kCompute, {.segment = block(b).segments.front(), .micro_batch = micro_batch},
     reads, writes + Buffers{catalog_.workspace}, {.flops = flops});
}

BufferId ProgramWriter::forward(int b, const Buffers& weights, BufferId input, int micro_batch) {
  const OpId id =
      block(b).kind == shape::BlockKind::kEmbed ? OpId::kEmbedForward : OpId::kLayerForward;
  const BufferId output = activation();
  compute(id, b, micro_batch, weights + Buffers{input}, {output}, forward_flops(b));
  return output;
}

BufferId ProgramWriter::read_state(Where where) {
  if (!state_on_nvme()) return home_state(where);
  const Bytes bytes = chunk_elems(where) * zero::kStateBytesPerElem;
  const BufferId slot = transient(catalog_.state_chunks.at(bytes), bytes);
  op(OpId::kReadState, LaneKind::kNvmeRead, where, {home_state(where)}, {slot},
     {.bytes = static_cast<double>(bytes)});
  return slot;
}

void ProgramWriter::write_state(Where where, BufferId state, const Buffers& record) {
  if (!state_on_nvme()) return;
  op_if(record, OpId::kWriteState, LaneKind::kNvmeWrite, where, {state}, {home_state(where)},
        {.bytes = static_cast<double>(chunk_elems(where) * zero::kStateBytesPerElem)});
}

BufferId ProgramWriter::fresh_param(Where where) {
  const bool written_at_home = setup_.homes.offload_param == ParamHome::kCpu ||
                               (setup_.homes.offload_param == ParamHome::kNone && !separate());
  if (written_at_home) return home_param(where);
  const Bytes bytes = chunk_elems(where) * elem();
  return transient(catalog_.fresh.at(bytes), bytes);
}

void ProgramWriter::publish(Where where, BufferId fresh, const Buffers& record) {
  if (fresh == home_param(where)) return;
  const OpId id = params_on_nvme() ? OpId::kWriteWeights : OpId::kPublish;
  const LaneKind lane = params_on_nvme() ? LaneKind::kNvmeWrite : LaneKind::kHostToDevice;
  op_if(record, id, lane, where, {fresh}, {home_param(where)},
        {.bytes = static_cast<double>(chunk_elems(where) * elem())});
}

}  // namespace sluice::schedule
