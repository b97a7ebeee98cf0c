#include "engine/train/host_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/record.h"
#include "engine/data/learning_rate.h"
#include "engine/schedule/gradient_route.h"
#include "engine/train/arithmetic_ops.h"
#include "engine/train/loss_scale.h"

namespace sluice::train {

using schedule::Operand;
using schedule::OpId;

namespace {

double norm_of(std::span<const double> sums) {
  return cpu_adam::global_norm({&sums, 1});
}

/// After a loss or a gradient that is not finite.
std::string what_to_lower(std::int64_t loss_scale, const LossScaleOptions& options) {
  const char* key = options.fixed ? "precision.loss_scale or " : "precision.min_loss_scale or ";
  return fmt::format("lower {}optimizer.lr or look at the data", loss_scale > 1 ? key : "");
}

}  // namespace

checkpoint::Each threads_of(const cpu_adam::Optimizer& optimizer) {
  return [&](std::size_t count, const auto& work) { optimizer.for_grains(count, work); };
}

void HostOps::run(const OpBytes& op) {
  switch (op.id) {
    case OpId::kLoadBatch:
      return load_batch(op);
    case OpId::kInitControl:
      op.values<Control>(Operand::kControl).front() = rules_.begin;
      return;
    case OpId::kInitState:
      return init_state(op);
    case OpId::kInitRecord:
      return init_record(op);
    case OpId::kInitGradient:
      return init_gradient(op);
    case OpId::kTakeRecord:
      op.values<Record>(Operand::kRecord).front() =
          op.values<const Record>(Operand::kSource).front();
      return;
    case OpId::kJoinState:
      return join_state(op);
    case OpId::kSplitState:
      return split_state(op);
    case OpId::kAdoptWeights:
      return adopt_weights(op);
    case OpId::kBeginUpdate:
      return begin_update(op);
    case OpId::kDecide:
      return decide(op);
    case OpId::kDecideSegment:
      return decide_segment(op);
    case OpId::kEndUpdate:
      return end_update(op);
    case OpId::kReportLoss:
      return report_loss(op);
    case OpId::kSumState:
      return sum_state(op);
    case OpId::kSumGradient:
      return sum_gradient(op);
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
  if (op.id == OpId::kReadGradient) {
    return first_values_->read_gradient(op.where.segment, chunk(op.where), op[Operand::kGradient]);
  }
  return first_values_->read(op.where.segment, chunk(op.where), op.values<float>(Operand::kState));
}

void HostOps::init_state(const OpBytes& op) const {
  const zero::Chunk& c = chunk(op.where);
  first_values_->fill(op.where.segment, c, op.values<float>(Operand::kState),
                      threads_of(optimizer_));
  optimizer_.publish(fresh_of(op, setup_.compute, 0, c.elems), state_of(op).master);
}

/// What was decided before the run's first step, whose counters know of it. Its learning rate and
/// factor are those of then, whatever this run's are.
void HostOps::init_record(const OpBytes& op) const {
  const FirstValues::Waiting waiting = first_values_->waiting(op.where.segment);
  Control before = op.values<const Control>(Operand::kControl).front();
  --before.applied;
  Record record = next_record(before, Tag::unpack(op.tag).step - 1);
  record.lr = waiting.lr;
  record.clip = waiting.factor;
  op.values<Record>(Operand::kRecord).front() = record;
}

void HostOps::init_gradient(const OpBytes& op) const {
  first_values_->check_gradient(op.where.segment, chunk(op.where), op[Operand::kGradient],
                                threads_of(optimizer_));
}

/// Masters alone where there is room for no more.
void HostOps::join_state(const OpBytes& op) const {
  const std::size_t elems = chunk(op.where).elems;
  const auto whole = op.values<float>(Operand::kState);
  const cpu_adam::SplitState split =
      train::split_state(op[Operand::kSource], op.values<const Bf16>(Operand::kWeights), elems);
  if (whole.size() == elems) return optimizer_.join({whole, {}, {}}, split);
  optimizer_.join(state_of(op), split);
}

void HostOps::split_state(const OpBytes& op) const {
  // Its weights are first values, too.
  optimizer_.split(train::split_state(op[Operand::kTarget], {}, chunk(op.where).elems),
                   state_of(op));
}

void HostOps::adopt_weights(const OpBytes& op) const {
  const auto from = op[Operand::kSource], to = op[Operand::kTarget];
  const std::size_t elem = size_of(setup_.compute);
  optimizer_.for_grains(chunk(op.where).elems, [&](std::size_t begin, std::size_t end) {
    std::memcpy(&to[begin * elem], &from[begin * elem], (end - begin) * elem);
  });
}

/// With what applying it takes: where a step is skipped nothing is.
void HostOps::sum_gradient(const OpBytes& op) const {
  const zero::Chunk& c = chunk(op.where);
  const auto gradient = op[Operand::kGradient];
  const DType dtype = schedule::gradient_route(setup_, op.where.segment).dtype;
  const Record& record = op.values<const Record>(Operand::kRecord).front();
  std::atomic<std::uint64_t> sum{0};
  optimizer_.for_grains(c.elems, [&](std::size_t begin, std::size_t end) {
    sum += checkpoint::sum_of_gradient(c.first_elem, gradient, dtype, begin, end);
  });
  op.values<GradientReceipt>(Operand::kReceipts).front() = {sum, record.clip, record.lr,
                                                            record.applied};
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

Record HostOps::next_record(const Control& control, std::int64_t step) const {
  Record record;
  record.step = step;
  record.t = control.applied + 1;
  record.lr =
      static_cast<float>(data::lr_at(rules_.scheduler, rules_.optimizer.lr, step, rules_.steps));
  record.clip = 1 / static_cast<float>(control.loss_scale);
  const auto t = static_cast<std::uint64_t>(record.t);
  record.bias_correction1 =
      cpu_adam::bias_correction(static_cast<float>(rules_.optimizer.betas[0]), t);
  record.bias_correction2 =
      cpu_adam::bias_correction(static_cast<float>(rules_.optimizer.betas[1]), t);
  return record;
}

double HostOps::clip_factor(double norm) const {
  const auto& most = rules_.train.gradient_clipping;
  return most ? std::min(1.0, *most / (norm + 1e-6)) : 1.0;
}

void HostOps::begin_update(const OpBytes& op) const {
  const Control& control = op.values<const Control>(Operand::kControl).front();
  const Tag tag = Tag::unpack(op.tag);
  const double loss = mean_loss(op, tag);
  SLUICE_CHECK(std::isfinite(loss), kNonFinite,
               fmt::format("step {}: loss {}; train.on_nonfinite is stop: {}", tag.step + 1, loss,
                           what_to_lower(control.loss_scale, rules_.loss_scale)));
  op.values<Record>(Operand::kRecord).front() = next_record(control, tag.step);
}

void HostOps::decide(const OpBytes& op) {
  Control& control = op.values<Control>(Operand::kControl).front();
  const StepResult result = sum_up(op, control);
  Record record = next_record(control, Tag::unpack(op.tag).step);
  record.applied = !result.skipped;
  if (!setup_.clips_segments) record.clip *= static_cast<float>(result.clip);
  op.values<Record>(Operand::kRecord).front() = record;
  count(control, result, record.step);
}

void HostOps::end_update(const OpBytes& op) {
  Control& control = op.values<Control>(Operand::kControl).front();
  count(control, sum_up(op, control), Tag::unpack(op.tag).step);
}

StepResult HostOps::sum_up(const OpBytes& op, const Control& control) const {
  const Tag tag = Tag::unpack(op.tag);
  const auto scale = static_cast<double>(control.loss_scale);
  StepResult result;
  std::vector<std::span<const double>> norms;
  for (const auto of_segment : op.all(Operand::kNorms)) {
    norms.push_back(OpBytes::as<const double>(of_segment));
    const double norm = norm_of(norms.back()) / scale;
    // What is no number stays.
    if (!std::isnan(result.largest_gnorm) && !(norm <= result.largest_gnorm)) {
      result.largest_gnorm = norm;
    }
  }
  result.loss = mean_loss(op, tag);
  result.gnorm = cpu_adam::global_norm(norms) / scale;
  result.lr = data::lr_at(rules_.scheduler, rules_.optimizer.lr, tag.step, rules_.steps);
  result.clip = clip_factor(setup_.clips_segments ? result.largest_gnorm : result.gnorm);
  result.loss_scale = control.loss_scale;
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.gnorm);
  result.targets = batches_.targets(tag);
  return result;
}

void HostOps::count(Control& control, const StepResult& result, std::int64_t step) {
  if (result.skipped) {
    skip(control, step, result.loss, result.gnorm);
  } else {
    ++control.applied;
    control.skipped_in_row = 0;
    scale_held(rules_.loss_scale, control);
  }
  const std::lock_guard lock(mutex_);
  steps_[step] = result;
}

void HostOps::skip(Control& control, std::int64_t step, double loss, double gnorm) const {
  const std::int64_t scale = control.loss_scale;
  if (std::isfinite(loss) && lower_scale(rules_.loss_scale, control)) return;
  ++control.skipped_in_row;
  const bool stop = rules_.train.on_nonfinite == OnNonFinite::kStop;
  SLUICE_CHECK(!stop && control.skipped_in_row < rules_.train.max_skips, kNonFinite,
               fmt::format("step {}: loss {}, gradient norm {}{}; {}: {}", step + 1, loss, gnorm,
                           scale > 1 ? fmt::format(", loss scale {}", scale) : "",
                           stop ? "train.on_nonfinite is stop"
                                : fmt::format("{} skipped steps in a row, train.max_skips is {}",
                                              control.skipped_in_row, rules_.train.max_skips),
                           what_to_lower(scale, rules_.loss_scale)));
}

void HostOps::decide_segment(const OpBytes& op) const {
  const Record& step = op.values<const Record>(Operand::kStepRecord).front();
  const auto norms = op.values<const double>(Operand::kNorms);
  const double norm = norm_of(norms) * step.clip;  // without the loss scale
  SLUICE_CHECK(
      !step.applied || std::isfinite(norm), kNonFinite,
      fmt::format("step {}: the gradient of {} is not finite. Segments whose gradients "
                  "came before it are updated already (optimizer.update is arriving): go "
                  "on from the last checkpoint, if there is one, and {}",
                  step.step + 1, tensors_of_bad(op.where.segment, norms),
                  what_to_lower(static_cast<std::int64_t>(1 / step.clip), rules_.loss_scale)));
  Record& record = op.values<Record>(Operand::kRecord).front();
  record = step;
  record.clip *= static_cast<float>(clip_factor(norm));
}

std::string HostOps::tensors_of_bad(std::int32_t segment, std::span<const double> sums) const {
  const auto bad = std::ranges::find_if(sums, [](double sum) { return !std::isfinite(sum); });
  const auto begin = static_cast<std::uint64_t>(bad - sums.begin()) * kGrainElems;
  std::vector<std::string> names;
  for (const zero::Placed& tensor : setup_.layouts[index(segment)].tensors) {
    if (tensor.end() <= begin || tensor.offset_elems >= begin + kGrainElems) continue;
    names.push_back(setup_.model->segments[index(segment)].tensors[index(tensor.tensor)].name);
  }
  return fmt::format("{}", fmt::join(names, " or "));
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
