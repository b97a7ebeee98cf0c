#include <algorithm>
#include <map>
#include <optional>

#include "engine/schedule/programs.h"
#include "engine/schedule/writer.h"

namespace sluice::schedule {
namespace {

using enum Operand;

class Init : public ProgramWriter {
 public:
  Init(const Setup& setup, const Catalog& catalog) : ProgramWriter("init", setup, catalog) {}

  std::shared_ptr<const prefetch::Program> write() {
    op(OpId::kInitControl, {}, {{kControl, catalog_.control}});
    if (setup_.begins_pending) init_records();
    for (int s = 0; s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) init({.segment = s, .chunk = c});
    }
    for (int s = 0; setup_.begins_pending && s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) init_gradient({.segment = s, .chunk = c});
    }
    return finish();
  }

 private:
  void init(Where where) {
    const BufferId state = state_slot(where);
    const BufferId fresh = fresh_slot(where, prefetch::Tier::kCpu);
    op(OpId::kReadModel, where, {{kState, state}});
    op(OpId::kInitState, where, {{kState, state}, {kFresh, fresh}},
       {.bytes = static_cast<double>(chunk(where).elems * zero::kStateBytesPerElem)});
    bring_whole_state_home(where, state);
    bring_weights_home(where, fresh, std::nullopt);
  }

  /// Of what the run goes on from: one, or one of each segment.
  void init_records() {
    for (int i = 0; i < static_cast<int>(catalog_.pending_records.size()); ++i) {
      op(OpId::kInitRecord, {.segment = i},
         {{kControl, catalog_.control},
          {kRecord, catalog_.pending_records[static_cast<std::size_t>(i)]}});
    }
  }

  void init_gradient(Where where) {
    const BufferId home = home_gradient(where);
    const Bytes bytes = pending_bytes(where);
    const BufferId slot =
        lies_on_device(home) ? transient(catalog_.saved_gradients.at(bytes), bytes) : home;
    op(OpId::kReadGradient, where, {{kGradient, slot}}, {.bytes = static_cast<double>(bytes)});
    op(OpId::kInitGradient, where, {{kGradient, slot}}, {.bytes = static_cast<double>(bytes)});
    if (slot != home) copy(OpId::kFetchGradient, where, slot, home);
  }
};

class Evaluation : public ProgramWriter {
 public:
  Evaluation(const Setup& setup, const Catalog& catalog)
      : ProgramWriter("evaluation", setup, catalog) {}

  std::shared_ptr<const prefetch::Program> write(std::int64_t batches) {
    const auto group = static_cast<int>(setup_.sweep);
    for (int first = 0; first < static_cast<int>(batches); first += group) {
      sweep(first, std::min(first + group, static_cast<int>(batches)));
    }
    op(OpId::kReportLoss, {}, {{kLoss, losses_}});
    return finish();
  }

 private:
  /// These micro-batches, block by block: streamed weights are fetched once for all of them.
  void sweep(int first, int end) {
    std::map<int, FetchedBatch> batch;
    std::map<int, BufferId> x;
    for (int mb = first; mb < end; ++mb) batch[mb] = fetch_batch(mb);
    const int head = blocks() - 1;
    for (int b = 0; b < head; ++b) {
      const Buffers weights = fetch(block(b));
      for (int mb = first; mb < end; ++mb) {
        const auto input = b == 0 ? std::nullopt : std::optional(x[mb]);
        x[mb] = forward(b, weights, batch[mb], input, mb);
      }
    }
    const Buffers weights = fetch(block(head));
    for (int mb = first; mb < end; ++mb) {
      const BufferId loss = new_loss();
      compute(OpId::kHeadLoss, head, mb,
              {{kWeights, weights}, {kInput, x[mb]}, {kBatch, batch[mb].device}, {kLoss, loss}}, 1);
      losses_.push_back(loss_on_host({.micro_batch = mb}, loss));
    }
  }

  Buffers losses_;  // by micro-batch
};

class Final : public ProgramWriter {
 public:
  Final(const Setup& setup, const Catalog& catalog) : ProgramWriter("final", setup, catalog) {}

  std::shared_ptr<const prefetch::Program> write() {
    for (int s = 0; s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) {
        save({.segment = s, .chunk = c});
      }
    }
    return finish();
  }

 private:
  void save(Where where) {
    const auto bytes_of = [&](DType dtype) {
      return Cost{.bytes = static_cast<double>(chunk(where).elems * size_of(dtype))};
    };
    if (setup_.saves_weights && setup_.host_has_weights()) {
      return op(OpId::kSaveWeights, where, {{kWeights, home_param(where)}},
                bytes_of(setup_.compute));
    }
    op(OpId::kSave, where, {{kState, read_masters(where)}}, bytes_of(DType::kF32));
  }
};

class Checkpoint : public ProgramWriter {
 public:
  Checkpoint(const Setup& setup, const Catalog& catalog)
      : ProgramWriter("checkpoint", setup, catalog) {}

  std::shared_ptr<const prefetch::Program> write(Saves saves) {
    const BufferId receipts =
        transient(catalog_.receipts, receipts_of(setup_, saves == Saves::kState ? 1 : 2));
    position_ = part_of(receipts, 0, kReceiptBytes);
    // Noted now: were it read by the last op, the next step could decide nothing before that.
    op(OpId::kBeginCheckpoint, {}, {{kControl, catalog_.control}, {kPosition, position_}});
    Bytes at = 0;
    const auto next = [&] { return part_of(receipts, at += kReceiptBytes, kReceiptBytes); };
    for (int s = 0; s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) record({.segment = s, .chunk = c}, next());
    }
    for (int s = 0; saves == Saves::kGradientToo && s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) gradient({.segment = s, .chunk = c}, next());
    }
    op(OpId::kSealCheckpoint, {}, {{kReceipts, receipts}});
    return finish();
  }

 private:
  void record(Where where, BufferId receipt) {
    const BufferId state = read_whole_state(where);
    const Cost cost{.bytes = static_cast<double>(chunk(where).elems * zero::kStateBytesPerElem)};
    op(OpId::kSumState, where, {{kState, state}, {kReceipts, receipt}}, cost);
    op(OpId::kWriteRecord, where, {{kPosition, position_}, {kState, state}, {kReceipts, receipt}},
       cost);
  }

  void gradient(Where where, BufferId receipt) {
    BufferId at = home_gradient(where);
    const Cost cost{.bytes = static_cast<double>(pending_bytes(where))};
    if (lies_on_device(at)) {
      at = moved(OpId::kOffloadGradient, where, at,
                 catalog_.saved_gradients.at(pending_bytes(where)));
    }
    const auto& records = catalog_.pending_records;
    const BufferId record =
        records[std::min(records.size() - 1, static_cast<std::size_t>(where.segment))];
    op(OpId::kSumGradient, where, {{kGradient, at}, {kRecord, record}, {kReceipts, receipt}}, cost);
    op(OpId::kWriteGradient, where, {{kPosition, position_}, {kGradient, at}, {kReceipts, receipt}},
       cost);
  }

  BufferId position_ = 0;
};

}  // namespace

std::shared_ptr<const prefetch::Program> checkpoint_program(const Setup& setup,
                                                            const Catalog& catalog, Saves saves) {
  return Checkpoint(setup, catalog).write(saves);
}

std::shared_ptr<const prefetch::Program> init_program(const Setup& setup, const Catalog& catalog) {
  return Init(setup, catalog).write();
}

std::shared_ptr<const prefetch::Program> evaluation_program(const Setup& setup,
                                                            const Catalog& catalog,
                                                            std::int64_t batches) {
  return Evaluation(setup, catalog).write(batches);
}

std::shared_ptr<const prefetch::Program> final_program(const Setup& setup, const Catalog& catalog) {
  return Final(setup, catalog).write();
}

}  // namespace sluice::schedule
