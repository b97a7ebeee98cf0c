#include "engine/schedule/writer.h"

#include <algorithm>
#include <utility>

namespace sluice::schedule {

using enum Operand;

void ProgramWriter::op(OpId id, Where where, const Bindings& operands, Cost cost,
                       std::optional<BufferId> record) {
  add(make_op(id, where, operands, cost), record);
}

void ProgramWriter::arithmetic(OpId id, prefetch::Tier tier, Where where, const Bindings& operands,
                               Cost cost, std::optional<BufferId> record) {
  const LaneKind lane = tier == prefetch::Tier::kGpu ? LaneKind::kCompute : LaneKind::kCpu;
  add(make_op(id, where, operands, cost, lane), record);
}

void ProgramWriter::add(prefetch::Op op, std::optional<BufferId> record) {
  if (record) op.predicate = {*record, static_cast<std::uint16_t>(RecordField::kApplied)};
  program_->op(std::move(op));
}

BufferId ProgramWriter::moved(OpId id, Where where, BufferId from, prefetch::PoolId to,
                              std::optional<BufferId> record) {
  const BufferId target = transient(to, program_->info(from).bytes);
  copy(id, where, from, target, record);
  return target;
}

void ProgramWriter::copy(OpId id, Where where, BufferId from, BufferId to,
                         std::optional<BufferId> record) {
  const auto bytes = static_cast<double>(program_->info(to).bytes);
  op(id, where, {{kSource, from}, {kTarget, to}}, {.bytes = bytes}, record);
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

ProgramWriter::FetchedBatch ProgramWriter::fetch_batch(int micro_batch) {
  const Bytes bytes = catalog_.sizes.batch;
  const Where where{.micro_batch = micro_batch};
  const BufferId host = transient(catalog_.host_batch, bytes);
  op(OpId::kLoadBatch, where, {{kBatch, host}}, {.bytes = static_cast<double>(bytes)});
  if (!separate()) return {host, host};
  return {moved(OpId::kFetchBatch, where, host, catalog_.device_batch), host};
}

void ProgramWriter::compute(OpId id, int b, int micro_batch, Bindings operands, double forwards) {
  operands.emplace_back(kWorkspace, catalog_.workspace);
  const double forward =
      shape::forward_flops(*setup_.model, block(b), setup_.micro_batch_size, setup_.seq_len);
  // Where names the block by its first segment; the handlers know the blocks.
  op(id, {.segment = block(b).segments.front(), .micro_batch = micro_batch}, operands,
     {.flops = forwards * forward});
}

BufferId ProgramWriter::forward(int b, const Buffers& weights, const FetchedBatch& batch,
                                std::optional<BufferId> input, int micro_batch) {
  const BufferId output = activation();
  Bindings operands{{kWeights, weights}, {kBatch, batch.device}, {kOutput, output}};
  if (input) {
    operands.emplace_back(kInput, *input);
    operands.emplace_back(kHostBatch, batch.host);
  }
  compute(input ? OpId::kLayerForward : OpId::kEmbedForward, b, micro_batch, std::move(operands),
          1);
  return output;
}

bool ProgramWriter::host_reaches_state() const {
  return setup_.homes.offload_optimizer == OptimizerHome::kCpu ||
         (setup_.updates_on_device() && !separate());
}

BufferId ProgramWriter::read_state(Where where) {
  return read_state(where, state_bytes(where));
}

BufferId ProgramWriter::read_whole_state(Where where) {
  const BufferId state = read_state(where);
  return setup_.splits_masters() ? joined(where, state, whole_bytes(where)) : state;
}

BufferId ProgramWriter::read_masters(Where where) {
  const Bytes masters = chunk(where).elems * size_of(DType::kF32);
  if (!setup_.splits_masters()) return read_state(where, first_of_state(where, masters));
  // Lower halves, then v, which has their marks.
  const Bytes halves = chunk(where).elems * size_of(DType::kBf16) + masters;
  return joined(where, read_state(where, first_of_state(where, halves)), masters);
}

Bytes ProgramWriter::first_of_state(Where where, Bytes wanted) const {
  return std::min(round_up(wanted, kSummed), state_bytes(where));
}

BufferId ProgramWriter::joined(Where where, BufferId state, Bytes first) {
  const BufferId whole = transient(catalog_.whole_states, first);
  const Bytes weights = chunk(where).elems * size_of(setup_.compute);
  const auto bytes = static_cast<double>(program_->info(state).bytes + weights + first);
  op(OpId::kJoinState, where, {{kSource, state}, {kWeights, home_param(where)}, {kState, whole}},
     {.bytes = bytes});
  return whole;
}

BufferId ProgramWriter::read_state(Where where, Bytes first) {
  if (host_reaches_state()) return home_state(where);
  const BufferId slot = transient(catalog_.state_chunks.at(state_bytes(where)), first);
  copy(setup_.updates_on_device() ? OpId::kOffloadState : OpId::kReadState, where,
       home_state(where), slot);
  return slot;
}

BufferId ProgramWriter::state_slot(Where where) {
  if (host_reaches_state()) return home_state(where);
  const Bytes bytes = whole_bytes(where);
  if (setup_.splits_masters()) return transient(catalog_.whole_states, bytes);
  return transient(catalog_.state_chunks.at(bytes), bytes);
}

BufferId ProgramWriter::fresh_slot(Where where, prefetch::Tier tier) {
  const prefetch::Tier home = tier_of(home_param(where));
  const bool reached = home == tier || (home != prefetch::Tier::kNvme && !separate());
  return reached ? home_param(where) : waiting_slot(where, tier);
}

BufferId ProgramWriter::waiting_slot(Where where, prefetch::Tier tier) {
  const Bytes bytes = fresh_bytes(where);
  const bool on_device = tier == prefetch::Tier::kGpu && separate();
  return transient((on_device ? catalog_.device_fresh : catalog_.fresh).at(bytes), bytes);
}

void ProgramWriter::bring_state_home(Where where, BufferId state, std::optional<BufferId> record) {
  const BufferId home = home_state(where);
  if (state == home) return;
  copy(setup_.updates_on_device() ? OpId::kFetchState : OpId::kWriteState, where, state, home,
       record);
}

void ProgramWriter::bring_whole_state_home(Where where, BufferId whole) {
  if (!setup_.splits_masters()) return bring_state_home(where, whole, std::nullopt);
  const Bytes bytes = state_bytes(where);
  const BufferId state = transient(catalog_.state_chunks.at(bytes), bytes);
  op(OpId::kSplitState, where, {{kState, whole}, {kTarget, state}},
     {.bytes = static_cast<double>(whole_bytes(where) + bytes)});
  bring_state_home(where, state, std::nullopt);
}

void ProgramWriter::bring_weights_home(Where where, BufferId fresh,
                                       std::optional<BufferId> record) {
  const BufferId home = home_param(where);
  if (fresh == home) return;
  if (lies_on_host(fresh) && lies_on_host(home)) {
    const auto bytes = 2 * static_cast<double>(fresh_bytes(where));  // read and written
    return op(OpId::kAdoptWeights, where, {{kSource, fresh}, {kTarget, home}}, {.bytes = bytes},
              record);
  }
  switch (setup_.homes.offload_param) {
    case ParamHome::kNone:
      return copy(OpId::kPublish, where, fresh, home, record);
    case ParamHome::kCpu:
      return copy(OpId::kOffloadWeights, where, fresh, home, record);
    case ParamHome::kNvme:
      if (lies_on_device(fresh)) {
        fresh = moved(OpId::kOffloadWeights, where, fresh, catalog_.fresh.at(fresh_bytes(where)),
                      record);
      }
      return copy(OpId::kWriteWeights, where, fresh, home, record);
  }
}

}  // namespace sluice::schedule
