#include "engine/schedule/writer.h"

namespace sluice::schedule {

BufferId ProgramWriter::fetch(int segment) {
  const BufferId home = catalog_.params[static_cast<std::size_t>(segment)];
  if (!setup_.streams_params()) return home;
  const Bytes bytes = segment_bytes(segment);
  const BufferId slot = transient(catalog_.device_params.at(bytes), bytes);
  op(OpId::kFetchWeights, LaneKind::kHostToDevice, {.segment = segment}, {home}, {slot},
     {.bytes = static_cast<double>(bytes)});
  return slot;
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
  return shape::forward_flops(setup_.model, block(b), setup_.micro_batch, setup_.seq_len);
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
  if (!on_nvme()) return home_state(where);
  const Bytes bytes = chunk_elems(where) * zero::kStateBytesPerElem;
  const BufferId slot = transient(catalog_.state_chunks.at(bytes), bytes);
  op(OpId::kReadState, LaneKind::kNvmeRead, where, {home_state(where)}, {slot},
     {.bytes = static_cast<double>(bytes)});
  return slot;
}

void ProgramWriter::write_state(Where where, BufferId state, const Buffers& record) {
  if (!on_nvme()) return;
  op_if(record, OpId::kWriteState, LaneKind::kNvmeWrite, where, {state}, {home_state(where)},
        {.bytes = static_cast<double>(chunk_elems(where) * zero::kStateBytesPerElem)});
}

BufferId ProgramWriter::fresh_param(Where where) {
  if (setup_.homes.offload_param == ParamHome::kCpu || !separate()) return home_param(where);
  const Bytes bytes = chunk_elems(where) * elem();
  return transient(catalog_.fresh.at(bytes), bytes);
}

void ProgramWriter::publish(Where where, BufferId fresh, const Buffers& record) {
  if (fresh == home_param(where)) return;
  op_if(record, OpId::kPublish, LaneKind::kHostToDevice, where, {fresh}, {home_param(where)},
        {.bytes = static_cast<double>(chunk_elems(where) * elem())});
}

}  // namespace sluice::schedule
