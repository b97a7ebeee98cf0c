#include "engine/train/host_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/record.h"
#include "engine/data/learning_rate.h"

namespace sluice::train {

using schedule::Operand;
using schedule::OpId;

namespace {

/// Master, m and v of a chunk lie one after the other.
cpu_adam::State state_of(const OpBytes& op) {
  const auto all = op.values<float>(Operand::kState);
  const std::size_t n = all.size() / 3;
  return {all.first(n), all.subspan(n, n), all.last(n)};
}

cpu_adam::Gradient values_of(OpBytes::Bytes bytes, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return OpBytes::as<const float>(bytes);
    case DType::kBf16:
      return OpBytes::as<const Bf16>(bytes);
    case DType::kF16:
      return OpBytes::as<const Fp16>(bytes);
  }
  throw Error(Errc::kLogic, "a gradient of no dtype");
}

/// Elements [first, first + elems).
cpu_adam::Gradient part(const cpu_adam::Gradient& all, std::uint64_t first, std::uint64_t elems) {
  return std::visit([&](auto span) -> cpu_adam::Gradient { return span.subspan(first, elems); },
                    all);
}

/// New weights: elements [first, first + elems) of the chunk.
cpu_adam::Published fresh(const OpBytes& op, DType dtype, std::uint64_t first,
                          std::uint64_t elems) {
  switch (dtype) {
    case DType::kF32:
      return op.values<float>(Operand::kFresh).subspan(first, elems);
    case DType::kBf16:
      return op.values<Bf16>(Operand::kFresh).subspan(first, elems);
    case DType::kF16:
      return op.values<Fp16>(Operand::kFresh).subspan(first, elems);
  }
  throw Error(Errc::kLogic, "weights of no dtype");
}

cpu_adam::Mode mode_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::kAdamW:
      return cpu_adam::Mode::kAdamW;
    case OptimizerType::kAdam:
      return cpu_adam::Mode::kAdam;
  }
  throw Error(Errc::kLogic, "an optimizer of no type");
}

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

void HostOps::run(const OpBytes& op) {
  switch (op.id) {
    case OpId::kLoadBatch:
      return load_batch(op);
    case OpId::kInitControl:
      op.values<Control>(Operand::kControl).front() = rules_.begin;
      return;
    case OpId::kInitState:
      return init_state(op);
    case OpId::kStartSum:
    case OpId::kAccumulate:
      return accumulate(op);
    case OpId::kAddUses:
      return add_uses(op);
    case OpId::kNorm:
      return norm(op);
    case OpId::kDecide:
      return decide(op);
    case OpId::kAdam:
      return adam(op);
    case OpId::kReportLoss:
      return report_loss(op);
    case OpId::kSumState:
      return sum_state(op);
    default:
      throw Error(Errc::kLogic, fmt::format("'{}' is no op of the host", kind_of(op.id).name));
  }
}

const zero::Chunk& HostOps::chunk(const prefetch::Where& where) const {
  return setup_.chunks[index(where.segment)][index(where.chunk)];
}

cpu_adam::Gradient HostOps::gradient(const OpBytes& op) const {
  return values_of(op[Operand::kGradient], routes_[index(op.where.segment)].dtype);
}

void HostOps::load_batch(const OpBytes& op) const {
  batches_.load(Tag::unpack(op.tag), op.where.micro_batch,
                schedule::batch_of(op.values<std::int64_t>(Operand::kBatch)));
}

Ticket HostOps::read_first_values(const OpBytes& op) const {
  return first_values_->read(op.where.segment, chunk(op.where), op.values<float>(Operand::kState));
}

void HostOps::init_state(const OpBytes& op) const {
  const zero::Chunk& c = chunk(op.where);
  first_values_->fill(
      op.where.segment, c, op.values<float>(Operand::kState),
      [&](std::size_t count, const auto& work) { optimizer_.for_grains(count, work); });
  optimizer_.publish(fresh(op, setup_.compute, 0, c.elems), state_of(op).master);
}

void HostOps::sum_state(const OpBytes& op) const {
  const zero::Chunk& c = chunk(op.where);
  const auto state = op.values<const float>(Operand::kState);
  std::atomic<std::uint64_t> sum{0};
  optimizer_.for_grains(c.elems, [&](std::size_t begin, std::size_t end) {
    sum += checkpoint::sum_of_state(c.first_elem, state, begin, end);
  });
  op.values<std::uint64_t>(Operand::kReceipts).front() = sum;
}

void HostOps::accumulate(const OpBytes& op) const {
  const auto sum = op.values<float>(Operand::kSum);
  const auto contribution = values_of(op[Operand::kContribution], setup_.compute);
  if (op.id == OpId::kStartSum) {
    optimizer_.assign(sum, contribution);
  } else {
    optimizer_.accumulate(sum, contribution);
  }
}

void HostOps::add_uses(const OpBytes& op) const {
  const auto sum = op.values<float>(Operand::kSum);
  optimizer_.add(sum, std::span<const float>(sum), op.values<const float>(Operand::kOtherUse));
}

void HostOps::norm(const OpBytes& op) const {
  optimizer_.grain_norms(gradient(op), op.values<double>(Operand::kNorms));
}

void HostOps::decide(const OpBytes& op) {
  Control& control = op.values<Control>(Operand::kControl).front();
  Record& record = op.values<Record>(Operand::kRecord).front();
  const Tag tag = Tag::unpack(op.tag);
  const double loss = mean_loss(op, tag);
  std::vector<std::span<const double>> norms;
  for (const auto of_segment : op.all(Operand::kNorms)) {
    norms.push_back(OpBytes::as<const double>(of_segment));
  }
  const double gnorm = cpu_adam::global_norm(norms);

  record = {};
  record.step = tag.step;
  record.t = control.applied + 1;
  record.applied = std::isfinite(loss) && std::isfinite(gnorm);
  const double lr = data::lr_at(rules_.scheduler, rules_.optimizer.lr, tag.step, rules_.steps);
  double clip = 1.0;
  if (rules_.train.gradient_clipping) {
    clip = std::min(1.0, *rules_.train.gradient_clipping / (gnorm + 1e-6));
  }
  record.lr = static_cast<float>(lr);
  record.clip = static_cast<float>(clip);
  const auto t = static_cast<std::uint64_t>(record.t);
  record.bias_correction1 =
      cpu_adam::bias_correction(static_cast<float>(rules_.optimizer.betas[0]), t);
  record.bias_correction2 =
      cpu_adam::bias_correction(static_cast<float>(rules_.optimizer.betas[1]), t);

  if (!record.applied) {
    ++control.skipped_in_row;
    const bool stop = rules_.train.on_nonfinite == OnNonFinite::kStop;
    SLUICE_CHECK(
        !stop && control.skipped_in_row < rules_.train.max_skips, kNonFinite,
        fmt::format("step {}: loss {}, gradient norm {}; {}: lower optimizer.lr or look at "
                    "the data",
                    tag.step + 1, loss, gnorm,
                    stop ? "train.on_nonfinite is stop"
                         : fmt::format("{} skipped steps in a row, train.max_skips is {}",
                                       control.skipped_in_row, rules_.train.max_skips)));
  } else {
    control.applied = record.t;
    control.skipped_in_row = 0;
  }
  const std::lock_guard lock(mutex_);
  steps_[tag.step] = {loss, gnorm, lr, clip, !record.applied, batches_.targets(tag)};
}

void HostOps::adam(const OpBytes& op) const {
  const Record& record = op.values<const Record>(Operand::kRecord).front();
  const zero::Chunk& c = chunk(op.where);
  const cpu_adam::State state = state_of(op);
  cpu_adam::Hyper hyper{.mode = mode_of(rules_.optimizer.type),
                        .lr = record.lr,
                        .beta1 = static_cast<float>(rules_.optimizer.betas[0]),
                        .beta2 = static_cast<float>(rules_.optimizer.betas[1]),
                        .eps = static_cast<float>(rules_.optimizer.eps),
                        .bias_correction1 = record.bias_correction1,
                        .bias_correction2 = record.bias_correction2,
                        .clip = record.clip};
  for (const zero::Run& run : zero::runs(setup_.model->segments[index(op.where.segment)],
                                         setup_.layouts[index(op.where.segment)], c)) {
    const std::uint64_t at = run.first_elem - c.first_elem;
    hyper.weight_decay = run.decayed ? static_cast<float>(rules_.optimizer.weight_decay) : 0.0F;
    optimizer_.update(hyper,
                      {state.master.subspan(at, run.elems), state.m.subspan(at, run.elems),
                       state.v.subspan(at, run.elems)},
                      part(gradient(op), at, run.elems), fresh(op, setup_.compute, at, run.elems));
  }
}

void HostOps::report_loss(const OpBytes& op) {
  const Tag tag = Tag::unpack(op.tag);
  const double loss = mean_loss(op, tag);
  const std::lock_guard lock(mutex_);
  evaluations_[tag.step] = loss;
}

double HostOps::mean_loss(const OpBytes& op, Tag tag) const {
  double sum = 0;
  for (const auto of_micro_batch : op.all(Operand::kLoss)) {
    sum += OpBytes::as<double>(of_micro_batch).front();
  }
  return sum / static_cast<double>(batches_.targets(tag));
}

StepResult HostOps::take_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  return steps_.extract(step).mapped();
}

double HostOps::take_evaluation(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  return evaluations_.extract(step).mapped();
}

}  // namespace sluice::train
