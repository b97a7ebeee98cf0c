#include "engine/schedule/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"

namespace sluice::schedule {
namespace {

using enum Operand;

constexpr OperandSpec read(Operand name) {
  return {name, Access::kRead};
}
constexpr OperandSpec read_several(Operand name) {
  return {name, Access::kRead, Count::kSeveral};
}
constexpr OperandSpec write(Operand name) {
  return {name, Access::kWrite};
}
constexpr OperandSpec write_several(Operand name) {
  return {name, Access::kWrite, Count::kSeveral};
}
constexpr OperandSpec update(Operand name) {
  return {name, Access::kUpdate};
}

/// Bytes from one place to another.
OpRow move(const char* name, LaneKind lane, Runner runner) {
  return {name, lane, runner, {read(kSource), write(kTarget)}};
}
OpRow to_device(const char* name) {
  return move(name, LaneKind::kHostToDevice, Runner::kCopyToDevice);
}
OpRow to_host(const char* name) {
  return move(name, LaneKind::kDeviceToHost, Runner::kCopyToHost);
}
OpRow read_drive(const char* name) {
  return move(name, LaneKind::kNvmeRead, Runner::kReadDrive);
}
OpRow write_drive(const char* name) {
  return move(name, LaneKind::kNvmeWrite, Runner::kWriteDrive);
}
/// A function of a block. Every one has the workspace.
OpRow model(const char* name, std::vector<OperandSpec> operands) {
  operands.push_back(write(kWorkspace));
  return {name, LaneKind::kCompute, Runner::kModel, std::move(operands)};
}
/// On the lane whose bytes go to drives: what a checkpoint's files take may be long.
OpRow checkpoint(const char* name, std::vector<OperandSpec> operands) {
  return {name, LaneKind::kNvmeWrite, Runner::kCheckpoint, std::move(operands)};
}
OpRow host(const char* name, LaneKind lane, std::vector<OperandSpec> operands) {
  return {name, lane, Runner::kHost, std::move(operands)};
}
/// Done where its operands lie.
OpRow arithmetic(const char* name, std::vector<OperandSpec> operands) {
  return {name, std::nullopt, Runner::kArithmetic, std::move(operands)};
}

OpRow make_row(OpId id) {
  const auto weights = read_several(kWeights);
  const auto grads = write_several(kGradients);
  switch (id) {
    case OpId::kLoadBatch:
      return host("load batch", LaneKind::kData, {write(kBatch)});
    case OpId::kFetchBatch:
      return to_device("fetch batch");
    case OpId::kReadWeights:
      return read_drive("read weights");
    case OpId::kFetchWeights:
      return to_device("fetch weights");
    case OpId::kEmbedForward:
      return model("embed forward", {weights, read(kBatch), write(kOutput)});
    case OpId::kLayerForward:
      return model("layer forward",
                   {weights, read(kInput), read(kBatch), read(kHostBatch), write(kOutput)});
    case OpId::kLayerForwardKeep:
      return model("layer forward keep", {weights, read(kInput), read(kBatch), read(kHostBatch),
                                          write(kOutput), write(kKept)});
    case OpId::kHeadTrain:
      return model("head", {weights, read(kInput), read(kBatch), read(kControl),
                            write(kInputGradient), write(kLoss), grads});
    case OpId::kHeadTrainKeep:
      return model("head keep", {weights, read(kInput), read(kBatch), read(kControl),
                                 write(kInputGradient), write(kLoss), write(kKept), grads});
    case OpId::kHeadLoss:
      return model("head loss", {weights, read(kInput), read(kBatch), write(kLoss)});
    case OpId::kLayerBackward:
      return model("layer backward", {weights, read(kInput), read(kBatch), read(kHostBatch),
                                      read(kOutputGradient), write(kInputGradient), grads});
    case OpId::kLayerBackwardKept:
      return model("layer backward kept",
                   {weights, read(kInput), read(kBatch), read(kHostBatch), read(kOutputGradient),
                    read(kKept), write(kInputGradient), grads});
    case OpId::kEmbedBackward:
      return model("embed backward", {read(kBatch), read(kOutputGradient), grads});
    case OpId::kOffloadLoss:
      return to_host("offload loss");
    case OpId::kOffloadActivation:
      return to_host("offload activation");
    case OpId::kWriteActivation:
      return write_drive("write activation");
    case OpId::kReadActivation:
      return read_drive("read activation");
    case OpId::kFetchActivation:
      return to_device("fetch activation");
    case OpId::kOffloadGradient:
      return to_host("offload gradient");
    case OpId::kStartSum:
      return arithmetic("start sum", {read(kContribution), write(kSum)});
    case OpId::kAccumulate:
      return arithmetic("accumulate", {read(kContribution), update(kSum)});
    case OpId::kAddUses:
      return arithmetic("add uses", {update(kSum), read(kOtherUse)});
    case OpId::kNorm:
      return arithmetic("norm", {read_several(kGradient), write(kNorms)});
    case OpId::kOffloadNorms:
      return to_host("offload norms");
    case OpId::kFetchGradient:
      return to_device("fetch gradient");
    case OpId::kBeginUpdate:
      return host("begin update", LaneKind::kControl,
                  {read(kControl), read_several(kLoss), write(kRecord)});
    case OpId::kDecide:
      return host("decide", LaneKind::kControl,
                  {update(kControl), read_several(kLoss), read_several(kNorms), write(kRecord)});
    case OpId::kDecideSegment:
      return host("decide segment", LaneKind::kControl,
                  {read(kStepRecord), read(kNorms), write(kRecord)});
    case OpId::kEndUpdate:
      return host("end update", LaneKind::kControl,
                  {update(kControl), read_several(kLoss), read_several(kNorms)});
    case OpId::kTakeRecord:
      return host("take record", LaneKind::kControl, {read(kSource), write(kRecord)});
    case OpId::kReadState:
      return read_drive("read state");
    case OpId::kAdam:
      return arithmetic("adam",
                        {read(kRecord), update(kState), read_several(kGradient), write(kFresh)});
    case OpId::kAdamSplit:
      return arithmetic("adam split", {read(kRecord), read(kWeights), update(kState),
                                       read_several(kGradient), write(kFresh)});
    case OpId::kJoinState:
      return host("join state", LaneKind::kCpu, {read(kSource), read(kWeights), write(kState)});
    case OpId::kSplitState:
      return host("split state", LaneKind::kCpu, {read(kState), write(kTarget)});
    case OpId::kWriteState:
      return write_drive("write state");
    case OpId::kOffloadState:
      return to_host("offload state");
    case OpId::kFetchState:
      return to_device("fetch state");
    case OpId::kPublish:
      return to_device("publish");
    case OpId::kAdoptWeights:
      return host("adopt weights", LaneKind::kCpu, {read(kSource), write(kTarget)});
    case OpId::kOffloadWeights:
      return to_host("offload weights");
    case OpId::kWriteWeights:
      return write_drive("write weights");
    case OpId::kInitControl:
      return host("init control", LaneKind::kControl, {write(kControl)});
    case OpId::kReadModel:
      return {"read model", LaneKind::kNvmeRead, Runner::kReadModel, {write(kState)}};
    case OpId::kInitState:
      return host("init state", LaneKind::kCpu, {update(kState), write(kFresh)});
    case OpId::kInitRecord:
      return host("init record", LaneKind::kControl, {read(kControl), write(kRecord)});
    case OpId::kReadGradient:
      return {"read gradient", LaneKind::kNvmeRead, Runner::kReadModel, {write(kGradient)}};
    case OpId::kInitGradient:
      return host("init gradient", LaneKind::kCpu, {update(kGradient)});
    case OpId::kReportLoss:
      return host("report loss", LaneKind::kControl, {read_several(kLoss)});
    case OpId::kSave:
      return {"save", LaneKind::kData, Runner::kSave, {read(kState)}};
    case OpId::kSaveWeights:
      return {"save weights", LaneKind::kData, Runner::kSave, {read(kWeights)}};
    case OpId::kBeginCheckpoint:
      return checkpoint("begin checkpoint", {read(kControl), write(kPosition)});
    case OpId::kSumState:
      return host("sum state", LaneKind::kCpu, {read(kState), write(kReceipts)});
    case OpId::kWriteRecord:
      return checkpoint("write record", {read(kPosition), read(kState), update(kReceipts)});
    case OpId::kSumGradient:
      return host("sum gradient", LaneKind::kCpu,
                  {read(kGradient), read(kRecord), write(kReceipts)});
    case OpId::kWriteGradient:
      return checkpoint("write gradient", {read(kPosition), read(kGradient), update(kReceipts)});
    case OpId::kSealCheckpoint:
      return checkpoint("seal checkpoint", {read(kReceipts)});
    case OpId::kCount:
      break;
  }
  throw Error(Errc::kLogic, "there is no such op");
}

const char* name_of(Operand operand) {
  switch (operand) {
    case kSource:
      return "source";
    case kTarget:
      return "target";
    case kBatch:
      return "batch";
    case kHostBatch:
      return "host batch";
    case kWeights:
      return "weights";
    case kGradients:
      return "gradients";
    case kInput:
      return "input";
    case kOutput:
      return "output";
    case kOutputGradient:
      return "output gradient";
    case kInputGradient:
      return "input gradient";
    case kKept:
      return "kept";
    case kLoss:
      return "loss";
    case kWorkspace:
      return "workspace";
    case kContribution:
      return "contribution";
    case kSum:
      return "sum";
    case kOtherUse:
      return "other use";
    case kGradient:
      return "gradient";
    case kNorms:
      return "norms";
    case kControl:
      return "control";
    case kRecord:
      return "record";
    case kStepRecord:
      return "step record";
    case kState:
      return "state";
    case kFresh:
      return "fresh";
    case kPosition:
      return "position";
    case kReceipts:
      return "receipts";
  }
  return "?";
}

bool fits(Count count, std::size_t buffers) {
  return count == Count::kSeveral ? buffers > 0 : buffers == 1;
}

constexpr auto kOps = static_cast<std::size_t>(OpId::kCount);

template <std::size_t... I>
std::array<OpRow, kOps> make_table(std::index_sequence<I...>) {
  return {make_row(static_cast<OpId>(I))...};
}

}  // namespace

const OpRow& row_of(OpId id) {
  static const std::array<OpRow, kOps> kTable = make_table(std::make_index_sequence<kOps>());
  return kTable.at(static_cast<std::size_t>(id));
}

prefetch::OpKind kind_of(OpId id) {
  return {static_cast<std::uint16_t>(id), row_of(id).name};
}

prefetch::Op make_op(OpId id, prefetch::Where where, const std::vector<Binding>& bindings,
                     prefetch::Cost cost, std::optional<LaneKind> lane) {
  const OpRow& row = row_of(id);
  SLUICE_CHECK(row.lane.has_value() != lane.has_value(), kLogic,
               fmt::format("'{}' has {} lane of its own", row.name, row.lane ? "a" : "no"));
  SLUICE_CHECK(bindings.size() == row.operands.size(), kLogic,
               fmt::format("'{}' has {} operands, {} were given", row.name, row.operands.size(),
                           bindings.size()));
  prefetch::Op op;
  op.kind = kind_of(id);
  op.lane = lane_of(row.lane ? *row.lane : *lane);
  op.where = where;
  op.cost = cost;
  std::vector<std::uint8_t> names_of_writes;
  for (const OperandSpec& spec : row.operands) {
    const auto bound = std::ranges::find(bindings, spec.name, &Binding::name);
    SLUICE_CHECK(
        bound != bindings.end(), kLogic,
        fmt::format("'{}' has an operand '{}', which was not given", row.name, name_of(spec.name)));
    SLUICE_CHECK(fits(spec.count, bound->buffers.size()), kLogic,
                 fmt::format("'{}' takes one buffer{} as '{}', {} were given", row.name,
                             spec.count == Count::kSeveral ? " or more" : "", name_of(spec.name),
                             bound->buffers.size()));
    const auto name = static_cast<std::uint8_t>(spec.name);
    const auto& buffers = bound->buffers;
    if (spec.access != Access::kWrite) {
      op.reads.insert(op.reads.end(), buffers.begin(), buffers.end());
      op.names.insert(op.names.end(), buffers.size(), name);
    }
    if (spec.access != Access::kRead) {
      op.writes.insert(op.writes.end(), buffers.begin(), buffers.end());
      names_of_writes.insert(names_of_writes.end(), buffers.size(), name);
    }
  }
  op.names.insert(op.names.end(), names_of_writes.begin(), names_of_writes.end());
  return op;
}

prefetch::BufferId buffer_of(const prefetch::Op& op, Operand name) {
  const auto at = std::ranges::find(op.names, static_cast<std::uint8_t>(name)) - op.names.begin();
  const auto n = static_cast<std::size_t>(at);
  SLUICE_CHECK(n < op.names.size(), kLogic,
               fmt::format("{} has no operand '{}'", describe(op), name_of(name)));
  return n < op.reads.size() ? op.reads[n] : op.writes[n - op.reads.size()];
}

prefetch::Lanes make_lanes() {
  using prefetch::Issue;
  return {{"compute", 1, Issue::kFifo},           {"h2d", 2, Issue::kOldestReady},
          {"d2h", 2, Issue::kOldestReady},        {"nvme-read", 4, Issue::kOldestReady},
          {"nvme-write", 4, Issue::kOldestReady}, {"cpu", 1, Issue::kOldestReady},
          {"data", 1, Issue::kOldestReady},       {"control", 1, Issue::kOldestReady}};
}

}  // namespace sluice::schedule
