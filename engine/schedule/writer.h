/// What the programs have in common: fetching weights, batches, forward through the blocks.
/// A private header of this room.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/catalog.h"
#include "engine/schedule/ops.h"
#include "engine/schedule/setup.h"
#include "prefetch/program.h"

namespace sluice::schedule {

using prefetch::BufferId;
using prefetch::Cost;
using prefetch::MemoryTag;
using prefetch::Where;

using Buffers = std::vector<BufferId>;

inline Buffers operator+(Buffers a, const Buffers& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ProgramWriter {
 public:
  ProgramWriter(std::string name, const Setup& setup, const Catalog& catalog)
      : setup_(setup),
        catalog_(catalog),
        program_(std::make_shared<prefetch::Program>(std::move(name), catalog.residents)) {}

  std::shared_ptr<const prefetch::Program> finish() {
    program_->seal();
    return std::move(program_);
  }

 protected:
  using Segments = std::vector<int>;

  void op(OpId id, LaneKind lane, Where where, Buffers reads, Buffers writes, Cost cost = {}) {
    program_->op({kind_of(id), lane_of(lane), where, std::move(reads), std::move(writes), cost});
  }
  /// The same, unless the record says that the step is skipped. An empty predicate: always.
  void op_if(const Buffers& record, OpId id, LaneKind lane, Where where, Buffers reads,
             Buffers writes, Cost cost) {
    std::optional<prefetch::Predicate> applied;
    if (!record.empty()) {
      applied = {record.front(), static_cast<std::uint16_t>(RecordField::kApplied)};
    }
    program_->op(
        {kind_of(id), lane_of(lane), where, std::move(reads), std::move(writes), cost, applied});
  }
  BufferId transient(prefetch::PoolId pool, Bytes bytes) {
    return program_->buffer({pool, bytes, catalog_.tags[pool]});
  }
  bool separate() const { return setup_.sharing == Sharing::kSeparate; }
  bool state_on_nvme() const { return setup_.homes.offload_optimizer == OptimizerHome::kNvme; }
  bool params_on_nvme() const { return setup_.homes.offload_param == ParamHome::kNvme; }
  Bytes elem() const { return size_of(setup_.compute); }
  Bytes segment_bytes(int segment) const { return setup_.segment_elems(segment) * elem(); }

  /// A copy of all of `from`, in a new buffer.
  BufferId moved(OpId id, LaneKind lane, Where where, BufferId from, prefetch::PoolId to);
  /// The segment's weights where the compute lane can read them.
  BufferId fetch(int segment);
  Buffers fetch(const shape::Block& block);
  /// The micro-batch's tokens and targets where the compute lane can read them.
  BufferId fetch_batch(int micro_batch);
  BufferId activation() { return transient(catalog_.activations, sizes_of(setup_).activation); }
  /// One block's forward without a backward to come; its output.
  BufferId forward(int block, const Buffers& weights, BufferId input, int micro_batch);
  void compute(OpId id, int block, int micro_batch, const Buffers& reads, const Buffers& writes,
               double flops);
  double forward_flops(int block) const;

  /// The state of one chunk in host memory: at home, or read from nvme.
  BufferId read_state(Where where);
  void write_state(Where where, BufferId state, const Buffers& record);

  const shape::Block& block(int b) const {
    return setup_.model.blocks[static_cast<std::size_t>(b)];
  }
  int blocks() const { return static_cast<int>(setup_.model.blocks.size()); }
  int segments() const { return static_cast<int>(setup_.model.segments.size()); }
  int chunks(int segment) const {
    return static_cast<int>(setup_.chunks[static_cast<std::size_t>(segment)].size());
  }
  std::uint64_t chunk_elems(Where where) const {
    return setup_
        .chunks[static_cast<std::size_t>(where.segment)][static_cast<std::size_t>(where.chunk)]
        .elems;
  }
  BufferId home_state(Where where) const {
    return catalog_
        .states[static_cast<std::size_t>(where.segment)][static_cast<std::size_t>(where.chunk)];
  }
  BufferId home_param(Where where) const {
    return catalog_.param_parts[static_cast<std::size_t>(where.segment)]
                               [static_cast<std::size_t>(where.chunk)];
  }
  /// Where new weights of a chunk are written by the host, and how they get home from there.
  BufferId fresh_param(Where where);
  void publish(Where where, BufferId fresh, const Buffers& record);

  const Setup& setup_;
  const Catalog& catalog_;

 private:
  std::shared_ptr<prefetch::Program> program_;
};

}  // namespace sluice::schedule
