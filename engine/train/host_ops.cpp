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
#include "engine/train/arithmetic_ops.h"
#include "engine/train/loss_scale.h"

namespace sluice::train {

using schedule::Operand;
using schedule::OpId;

namespace {

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
    case OpId::kDecide:
      return decide(op);
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
  optimizer_.publish(fresh_of(op, setup_.compute, 0, c.elems), state_of(op).master);
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

void HostOps::decide(const OpBytes& op) {
  Control& control = op.values<Control>(Operand::kControl).front();
  Record& record = op.values<Record>(Operand::kRecord).front();
  const Tag tag = Tag::unpack(op.tag);
  const double loss = mean_loss(op, tag);
  std::vector<std::span<const double>> norms;
  for (const auto of_segment : op.all(Operand::kNorms)) {
    norms.push_back(OpBytes::as<const double>(of_segment));
  }
  const std::int64_t scale = control.loss_scale;
  const double gnorm = cpu_adam::global_norm(norms) / static_cast<double>(scale);

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
  record.clip = static_cast<float>(clip) / static_cast<float>(scale);
  const auto t = static_cast<std::uint64_t>(record.t);
  record.bias_correction1 =
      cpu_adam::bias_correction(static_cast<float>(rules_.optimizer.betas[0]), t);
  record.bias_correction2 =
      cpu_adam::bias_correction(static_cast<float>(rules_.optimizer.betas[1]), t);

  if (record.applied) {
    control.applied = record.t;
    control.skipped_in_row = 0;
    scale_held(rules_.loss_scale, control);
  } else if (!std::isfinite(loss) || !lower_scale(rules_.loss_scale, control)) {
    ++control.skipped_in_row;
    const bool stop = rules_.train.on_nonfinite == OnNonFinite::kStop;
    SLUICE_CHECK(
        !stop && control.skipped_in_row < rules_.train.max_skips, kNonFinite,
        fmt::format("step {}: loss {}, gradient norm {}{}; {}: lower {}optimizer.lr or look at "
                    "the data",
                    tag.step + 1, loss, gnorm,
                    scale > 1 ? fmt::format(", loss scale {}", scale) : "",
                    stop ? "train.on_nonfinite is stop"
                         : fmt::format("{} skipped steps in a row, train.max_skips is {}",
                                       control.skipped_in_row, rules_.train.max_skips),
                    scale > 1 ? "precision.loss_scale, precision.min_loss_scale or " : ""));
  }
  const std::lock_guard lock(mutex_);
  steps_[tag.step] = {loss, gnorm, lr, clip, scale, !record.applied, batches_.targets(tag)};
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
