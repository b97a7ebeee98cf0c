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
    for (int s = 0; s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) init({.segment = s, .chunk = c});
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
    bring_home(where, state, fresh, std::nullopt);
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
        const Where where{.segment = s, .chunk = c};
        const BufferId state = read_state(where);
        op(OpId::kSave, where, {{kState, state}},
           {.bytes = static_cast<double>(chunk(where).elems * size_of(DType::kF32))});
      }
    }
    return finish();
  }
};

class Checkpoint : public ProgramWriter {
 public:
  Checkpoint(const Setup& setup, const Catalog& catalog)
      : ProgramWriter("checkpoint", setup, catalog) {}

  std::shared_ptr<const prefetch::Program> write() {
    const BufferId receipts = transient(catalog_.receipts, catalog_.sizes.receipts);
    position_ = part_of(receipts, 0, kReceiptBytes);
    // Noted now: were it read by the last op, the next step could decide nothing before that.
    op(OpId::kBeginCheckpoint, {}, {{kControl, catalog_.control}, {kPosition, position_}});
    Bytes at = kReceiptBytes;
    for (int s = 0; s < segments(); ++s) {
      for (int c = 0; c < chunks(s); ++c) {
        record({.segment = s, .chunk = c}, part_of(receipts, at, kReceiptBytes));
        at += kReceiptBytes;
      }
    }
    op(OpId::kSealCheckpoint, {}, {{kReceipts, receipts}});
    return finish();
  }

 private:
  void record(Where where, BufferId receipt) {
    const BufferId state = read_state(where);
    const Cost cost{.bytes = static_cast<double>(chunk(where).elems * zero::kStateBytesPerElem)};
    op(OpId::kSumState, where, {{kState, state}, {kReceipts, receipt}}, cost);
    op(OpId::kWriteRecord, where, {{kPosition, position_}, {kState, state}, {kReceipts, receipt}},
       cost);
  }

  BufferId position_ = 0;
};

}  // namespace

std::shared_ptr<const prefetch::Program> checkpoint_program(const Setup& setup,
                                                            const Catalog& catalog) {
  return Checkpoint(setup, catalog).write();
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
