/// What the programs have in common: fetching weights and batches, a block's forward, reading and
/// writing chunks of state. A private header of this room.
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
using prefetch::Where;

using Buffers = std::vector<BufferId>;
using Bindings = std::vector<Binding>;

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
  /// The next op of the program. With a record it does its work only where that says that the step
  /// is applied.
  void op(OpId id, Where where, const Bindings& operands, Cost cost = {},
          std::optional<BufferId> record = std::nullopt);
  /// Arithmetic, on the lane that works where its operands lie. `record`: as op() has it.
  void arithmetic(OpId id, prefetch::Tier tier, Where where, const Bindings& operands, Cost cost,
                  std::optional<BufferId> record = std::nullopt);
  /// An op that copies all of `from` into a new buffer; that buffer.
  BufferId moved(OpId id, Where where, BufferId from, prefetch::PoolId to,
                 std::optional<BufferId> record = std::nullopt);
  /// The same into one that is there, of `from` as much as that takes.
  void copy(OpId id, Where where, BufferId from, BufferId to,
            std::optional<BufferId> record = std::nullopt);

  BufferId transient(prefetch::PoolId pool, Bytes bytes) {
    return program_->buffer({pool, bytes, catalog_.tags[pool]});
  }
  /// What the device gave as a micro-batch's loss where the host can read it.
  BufferId loss_on_host(Where where, BufferId loss) {
    return separate() ? moved(OpId::kOffloadLoss, where, loss, catalog_.records) : loss;
  }
  BufferId new_loss() { return transient(catalog_.device_losses, catalog_.sizes.loss); }
  BufferId activation() { return transient(catalog_.activations, catalog_.sizes.activation); }
  BufferId part_of(BufferId parent, Bytes offset, Bytes bytes) {
    return program_->part_of(parent, offset, bytes);
  }

  /// The weights of a block's segments where the compute lane can read them: at home, or in a
  /// device slot, into which ops of this program bring them.
  Buffers fetch(const shape::Block& block);
  /// A micro-batch where the compute lane can read it, and where the host can: one where they share
  /// memory.
  struct FetchedBatch {
    BufferId device = 0, host = 0;
  };
  FetchedBatch fetch_batch(int micro_batch);
  /// A forward of the embedding (without `input`) or of a layer that leaves nothing but its output.
  BufferId forward(int block, const Buffers& weights, const FetchedBatch& batch,
                   std::optional<BufferId> input, int micro_batch);
  /// An op of a block on the compute lane; `forwards`: its work, in the block's forwards.
  void compute(OpId id, int block, int micro_batch, Bindings operands, double forwards);

  /// The state of one chunk in host memory, as it is at home: there, or brought to a slot.
  BufferId read_state(Where chunk);
  /// The same with its masters, whatever it is at home.
  BufferId read_whole_state(Where chunk);
  /// Of that only its master weights, and no more is brought than they take, in whole pieces of
  /// sums: they come first, of a split state lower halves and v.
  BufferId read_masters(Where chunk);
  /// Room for first values, with masters: at home, or a slot.
  BufferId state_slot(Where chunk);
  BufferId home_state(Where where) const {
    return catalog_
        .states[static_cast<std::size_t>(where.segment)][static_cast<std::size_t>(where.chunk)];
  }
  BufferId home_param(Where where) const {
    return catalog_.param_parts[static_cast<std::size_t>(where.segment)]
                               [static_cast<std::size_t>(where.chunk)];
  }
  /// Where new weights of one chunk are written by whoever works in this tier: at home, or in a
  /// slot. The second leaves those at home as they are.
  BufferId fresh_slot(Where chunk, prefetch::Tier tier);
  BufferId waiting_slot(Where chunk, prefetch::Tier tier);
  /// On their way home, where they are not there yet.
  void bring_state_home(Where chunk, BufferId state, std::optional<BufferId> record);
  void bring_whole_state_home(Where chunk, BufferId whole);
  void bring_weights_home(Where chunk, BufferId fresh, std::optional<BufferId> record);

  /// One chunk of what a step leaves to the next.
  BufferId home_gradient(Where where) const {
    return catalog_.pending_chunks[static_cast<std::size_t>(where.segment)]
                                  [static_cast<std::size_t>(where.chunk)];
  }
  Bytes pending_bytes(Where where) const { return program_->info(home_gradient(where)).bytes; }

  prefetch::Tier tier_of(BufferId id) const { return catalog_.pools[program_->info(id).pool].tier; }
  bool lies_on_device(BufferId id) const {
    return separate() && tier_of(id) == prefetch::Tier::kGpu;
  }
  bool separate() const { return setup_.sharing == Sharing::kSeparate; }
  Bytes segment_bytes(int segment) const {
    return setup_.segment_elems(segment) * size_of(setup_.compute);
  }
  const shape::Block& block(int b) const {
    return setup_.model->blocks[static_cast<std::size_t>(b)];
  }
  int blocks() const { return static_cast<int>(setup_.model->blocks.size()); }
  int segments() const { return static_cast<int>(setup_.model->segments.size()); }
  int chunks(int segment) const {
    return static_cast<int>(setup_.chunks[static_cast<std::size_t>(segment)].size());
  }
  const zero::Chunk& chunk(Where where) const {
    return setup_
        .chunks[static_cast<std::size_t>(where.segment)][static_cast<std::size_t>(where.chunk)];
  }

  const Setup& setup_;
  const Catalog& catalog_;

 private:
  void add(prefetch::Op op, std::optional<BufferId> record);
  BufferId fetch(int segment);
  BufferId read_state(Where where, Bytes first);
  /// Of a split state.
  BufferId joined(Where where, BufferId state, Bytes first);
  Bytes first_of_state(Where where, Bytes wanted) const;
  Bytes state_bytes(Where where) const {
    return chunk(where).elems * setup_.state_bytes_per_elem();
  }
  Bytes whole_bytes(Where where) const { return chunk(where).elems * zero::kStateBytesPerElem; }
  Bytes fresh_bytes(Where where) const { return chunk(where).elems * size_of(setup_.compute); }
  bool lies_on_host(BufferId id) const {
    return tier_of(id) != prefetch::Tier::kNvme && !lies_on_device(id);
  }
  bool host_reaches_state() const;

  std::shared_ptr<prefetch::Program> program_;
};

}  // namespace sluice::schedule
