/// The vocabulary of programs: what ops there are, and of each its lane, who runs it, and its
/// operands by name. Programs are written, run and measured by these names; nobody counts
/// positions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "prefetch/program.h"

namespace sluice::schedule {

enum class OpId : std::uint16_t {
  kLoadBatch,
  kFetchBatch,
  kReadWeights,   ///< one segment
  kFetchWeights,  ///< one segment
  kEmbedForward,
  kLayerForward,
  kLayerForwardKeep,
  kHeadTrain,      ///< forward and backward in one
  kHeadTrainKeep,  ///< which keeps its logits in between
  kHeadLoss,
  kLayerBackward,  ///< runs the layer's forward again
  kLayerBackwardKept,
  kEmbedBackward,
  kOffloadLoss,
  kOffloadActivation,
  kWriteActivation,
  kReadActivation,
  kFetchActivation,
  kOffloadGradient,  ///< a contribution, or one chunk of a gradient
  kStartSum,         ///< the first contribution is assigned
  kAccumulate,       ///< the others are added
  kAddUses,          ///< the sums of a tied tensor's two uses become one
  kNorm,             ///< sums of squares, one double per grain
  kOffloadNorms,
  kFetchGradient,  ///< one chunk, for an optimizer on the device
  kBeginUpdate,    ///< what a segment's decision rests on before the step's is there
  kDecide,
  kDecideSegment,  ///< the same for one segment, by its own norms
  kEndUpdate,      ///< counts a step whose segments are updated, and tells of it
  kTakeRecord,     ///< of the step before, whose gradients wait; this one will write its own there
  kReadState,
  kAdam,
  kAdamSplit,  ///< of state that leaves the masters' upper halves to the weights
  kWriteState,
  kOffloadState,  ///< one chunk, for those who read it on the host
  kFetchState,    ///< one chunk, home to the device
  kJoinState,     ///< puts masters together from such state and its weights; m and v beside them
                  ///< where there is room
  kSplitState,    ///< the other way
  kPublish,
  kAdoptWeights,    ///< a chunk of new ones, from host memory to host memory
  kOffloadWeights,  ///< a chunk of new ones
  kWriteWeights,
  kInitControl,
  kReadModel,  ///< what a chunk's first values are made of, into its state
  kInitState,
  kInitRecord,    ///< of a gradient whose update is still to come
  kReadGradient,  ///< one chunk of it, as it was saved
  kInitGradient,  ///< that is what was saved
  kReportLoss,
  kSave,             ///< into a file of final weights, masters rounded
  kSaveWeights,      ///< the same of weights that are so already
  kBeginCheckpoint,  ///< notes where the run stands, claims the space
  kSumState,         ///< what a record will be known by
  kWriteRecord,      ///< one chunk's state
  kSumGradient,      ///< the same of a gradient that waits, and what is needed to apply it
  kWriteGradient,    ///< one chunk of it
  kSealCheckpoint,   ///< all records are there: syncs them, says what they mean
  kCount
};

/// What a buffer is to an op.
enum class Operand : std::uint8_t {
  kSource,  ///< of bytes that are moved as they are
  kTarget,
  kBatch,           ///< tokens, targets, positions: batch.h
  kHostBatch,       ///< the same where the host, which gives the op to the stream, looks into it
  kWeights,         ///< of the block's segments, one buffer each, in their order
  kGradients,       ///< of those weights, likewise
  kInput,           ///< a block's, [B, S, hidden]
  kOutput,          ///< a block's, [B, S, hidden]
  kOutputGradient,  ///< of the loss, for the block's output
  kInputGradient,   ///< the same for its input
  kKept,            ///< what a layer's forward, or the head's first pass, leaves for its backward
  kLoss,            ///< nats summed over a micro-batch; one double
  kWorkspace,       ///< of the compute lane
  kContribution,    ///< gradient of one segment from one micro-batch and one use
  kSum,             ///< of contributions; fp32
  kOtherUse,        ///< the sum of the head's use, added to the embedding's
  kGradient,        ///< of a segment, or of a chunk, as the optimizer reads it; or its terms
  kNorms,           ///< sums of squares per grain
  kControl,         ///< the run's counters, and the scale of its loss
  kRecord,          ///< what was decided, and the update derives from
  kStepRecord,      ///< of the whole step, where each segment has a record of its own
  kState,           ///< master, m, v of one chunk, fp32; split: lower halves of masters, v, m
  kFresh,           ///< new weights of one chunk, in the dtype of compute
  kPosition,        ///< where the run stood when a checkpoint was begun
  kReceipts         ///< that, then a sum for each record; or one of these
};

enum class Access : std::uint8_t { kRead, kWrite, kUpdate };
enum class Count : std::uint8_t { kOne, kSeveral };

struct OperandSpec {
  Operand name;
  Access access;
  Count count = Count::kOne;
};

/// Who turns an op into work.
enum class Runner : std::uint8_t {
  kModel,         ///< the forward and backward functions of the blocks
  kArithmetic,    ///< sums and norms of gradients, Adam: by whoever works where they lie
  kHost,          ///< first values, batches, and the step's decisions
  kCopyToDevice,  ///< a stream of copies
  kCopyToHost,    ///< the stream of the other direction
  kReadDrive,
  kWriteDrive,
  kReadModel,  ///< the reader of first values
  kSave,       ///< the writer of final weights
  kCheckpoint  ///< the writer of checkpoints
};

/// The lanes of a machine with one device. Each has one line on why it exists.
enum class LaneKind : std::uint8_t {
  kCompute,  ///< the device's stream; the only caller of LibTorch
  kHostToDevice,
  kDeviceToHost,  ///< the other direction of the link: both run at once
  kNvmeRead,      ///< and files of a model, on whatever drive
  kNvmeWrite,     ///< apart from reads, so that a late write never delays the next read; and
                  ///< checkpoints, on whatever drive
  kCpu,           ///< the optimizer's arithmetic; its own threads inside
  kData,          ///< batches in, final weights out
  kControl        ///< a few numbers per step; never behind anything long
};
constexpr prefetch::LaneId lane_of(LaneKind kind) {
  return static_cast<prefetch::LaneId>(kind);
}
prefetch::Lanes make_lanes();

/// Everything there is to know of one kind of op.
struct OpRow {
  const char* name;
  std::optional<LaneKind> lane;  ///< nullopt: the lane that works where its bytes lie
  Runner runner;
  std::vector<OperandSpec> operands;
};
const OpRow& row_of(OpId id);
prefetch::OpKind kind_of(OpId id);

inline OpId id_of(const prefetch::Op& op) {
  return static_cast<OpId>(op.kind.id);
}

/// What an op may ask of the record to be run (prefetch::Predicate::field).
enum class RecordField : std::uint16_t { kApplied };  ///< the step is not skipped

/// An operand and what it is bound to.
struct Binding {
  Binding(Operand operand, prefetch::BufferId buffer) : name(operand), buffers{buffer} {}
  Binding(Operand operand, std::vector<prefetch::BufferId> several)
      : name(operand), buffers(std::move(several)) {}

  Operand name;
  std::vector<prefetch::BufferId> buffers;
};

/// An op with its operands bound, in any order. Throws kLogic when one of the row is missing or
/// bound to no buffer, or one that is not in the row was given. `lane` is for rows that have none.
prefetch::Op make_op(OpId id, prefetch::Where where, const std::vector<Binding>& bindings,
                     prefetch::Cost cost, std::optional<LaneKind> lane = std::nullopt);

/// The first buffer of that name. Throws kLogic when there is none.
prefetch::BufferId buffer_of(const prefetch::Op& op, Operand name);

/// The name of an op's n-th read, or write.
inline Operand read_name(const prefetch::Op& op, std::size_t n) {
  return static_cast<Operand>(op.names[n]);
}
inline Operand write_name(const prefetch::Op& op, std::size_t n) {
  return static_cast<Operand>(op.names[op.reads.size() + n]);
}

}  // namespace sluice::schedule
