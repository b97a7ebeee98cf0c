/// The vocabulary of programs: what ops there are, on which lane each runs, what it reads and
/// writes.
#pragma once

#include <array>
#include <cstdint>

#include "prefetch/program.h"

namespace sluice::schedule {

/// Behind each: its lane; reads -> writes in the order in which the program lists them.
/// `record` is the op's predicate, not among its reads; in brackets where not every program has it.
/// `w...` = the weights of the block's segments, `g...` = their gradients, ws = workspace.
enum class OpId : std::uint16_t {
  kLoadBatch,          ///< data:    -> batch (tokens, then targets; int64)
  kFetchBatch,         ///< h2d:     host batch -> device batch
  kReadWeights,        ///< nvme read: home -> slot; one segment
  kFetchWeights,       ///< h2d:     home or slot -> device slot; one segment
  kEmbedForward,       ///< compute: w... batch -> x ws
  kLayerForward,       ///< compute: w... x -> y ws
  kLayerForwardKeep,   ///< compute: w... x -> y kept ws
  kHeadTrain,          ///< compute: w... x batch -> dx loss g... ws; forward and backward in one
  kHeadLoss,           ///< compute: w... x batch -> loss ws
  kLayerBackward,      ///< compute: w... x dy -> dx g... ws; recomputes the layer
  kLayerBackwardKept,  ///< compute: w... x dy kept -> dx g... ws
  kEmbedBackward,      ///< compute: batch dx -> g... ws
  kOffloadActivation,  ///< d2h:     x -> host slot
  kWriteActivation,    ///< nvme write: x or host slot -> disk slot
  kReadActivation,     ///< nvme read:  disk slot -> x or host slot
  kFetchActivation,    ///< h2d:     host slot -> x
  kOffloadGradient,  ///< d2h:     contribution -> host copy; or record gradient -> copy of a chunk
  kAccumulate,       ///< compute or cpu: contribution [sum] -> sum; the first is assigned
  kAddUses,          ///< compute or cpu: embedding's sum, head's sum -> embedding's sum
  kNorm,             ///< compute or cpu: gradient -> sums of squares, one double per grain
  kDecide,        ///< control: control, a loss per micro-batch, norms per segment -> control record
  kReadState,     ///< nvme read:  home -> chunk of master, m, v
  kAdam,          ///< cpu:     record state gradient -> state weights
  kWriteState,    ///< nvme write: [record] chunk -> home
  kPublish,       ///< h2d:     [record] weights -> a chunk of the weights on the device
  kWriteWeights,  ///< nvme write: [record] weights -> a chunk of the weights at home
  kInitControl,   ///< control: -> control
  kInitState,     ///< cpu:     -> state weights
  kReportLoss,    ///< control: losses ->
  kSave,          ///< data:    state -> (a file)
  kCount
};

/// What the record says, as predicates name it.
enum class RecordField : std::uint16_t {
  kApplied  ///< the step is not skipped
};

prefetch::OpKind kind_of(OpId id);
inline OpId id_of(const prefetch::Op& op) {
  return static_cast<OpId>(op.kind.id);
}

/// The lanes of a machine with one device. Each has one line on why it exists.
enum class LaneKind : std::uint8_t {
  kCompute,  ///< the device's stream; the only caller of LibTorch
  kHostToDevice,
  kDeviceToHost,  ///< the other direction of the link: both run at once
  kNvmeRead,
  kNvmeWrite,  ///< apart from reads, so that a late write never delays the next read
  kCpu,        ///< the optimizer's arithmetic; its own threads inside
  kData,       ///< batches in, final weights out
  kControl     ///< a few numbers per step; never behind anything long
};
constexpr prefetch::LaneId lane_of(LaneKind kind) {
  return static_cast<prefetch::LaneId>(kind);
}
prefetch::Lanes make_lanes();

}  // namespace sluice::schedule
