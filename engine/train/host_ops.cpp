#include "engine/train/host_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/learning_rate.h"
#include "engine/schedule/catalog.h"
#include "engine/shape/init.h"

namespace sluice::train {

using schedule::OpId;

namespace {

template <class T>
T& as(std::byte* bytes) {
  return *reinterpret_cast<T*>(bytes);
}

template <class T>
std::span<T> span_of(std::byte* bytes, std::uint64_t n) {
  return {reinterpret_cast<T*>(bytes), n};
}

/// Master, m and v of a chunk lie one after the other.
cpu_adam::State state_of(std::byte* bytes, std::uint64_t elems) {
  auto* f = reinterpret_cast<float*>(bytes);
  return {{f, elems}, {f + elems, elems}, {f + 2 * elems, elems}};
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
      as<Control>(op.writes[0]) = {};
      return;
    case OpId::kInitState:
      return init_state(op);
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
    default:
      throw Error(Errc::kLogic, fmt::format("'{}' is no op of the host", kind_of(op.id).name));
  }
}

const zero::Chunk& HostOps::chunk(const prefetch::Where& where) const {
  return setup_.chunks[index(where.segment)][index(where.chunk)];
}

cpu_adam::Gradient HostOps::gradient(const std::byte* data, DType dtype,
                                     std::uint64_t elems) const {
  if (dtype == DType::kF32) {
    return std::span{reinterpret_cast<const float*>(data), elems};
  }
  return std::span{reinterpret_cast<const Bf16*>(data), elems};
}

/// `first` and `elems` within the chunk that `data` begins with.
cpu_adam::Published HostOps::published(std::byte* data, std::uint64_t first,
                                       std::uint64_t elems) const {
  if (setup_.compute == DType::kF32) return span_of<float>(data, first + elems).subspan(first);
  return span_of<Bf16>(data, first + elems).subspan(first);
}

void HostOps::load_batch(const OpBytes& op) const {
  const auto tokens = static_cast<std::uint64_t>(setup_.micro_batch_tokens());
  const auto both = span_of<std::int64_t>(op.writes[0], 2 * tokens);
  batches_.load(Tag::unpack(op.tag), op.where.micro_batch, both.first(tokens), both.last(tokens));
}

void HostOps::init_state(const OpBytes& op) const {
  const shape::Segment& segment = setup_.model.segments[index(op.where.segment)];
  const zero::Layout& layout = setup_.layouts[index(op.where.segment)];
  const zero::Chunk& c = chunk(op.where);
  const cpu_adam::State state = state_of(op.writes[0], c.elems);
  for (const zero::Run& run : zero::runs(segment, layout, c)) {
    const auto values = state.master.subspan(run.first_elem - c.first_elem, run.elems);
    if (run.tensor < 0) {
      std::fill(values.begin(), values.end(), 0.0F);
      continue;
    }
    const auto t = static_cast<std::size_t>(run.tensor);
    shape::initial_values(rules_.seed, segment.tensors[t],
                          run.first_elem - layout.tensors[t].offset_elems, values);
  }
  std::fill(state.m.begin(), state.m.end(), 0.0F);
  std::fill(state.v.begin(), state.v.end(), 0.0F);
  optimizer_.publish(published(op.writes[1], 0, c.elems), state.master);
}

void HostOps::accumulate(const OpBytes& op) const {
  const std::uint64_t elems = setup_.segment_elems(op.where.segment);
  const auto sum = span_of<float>(op.writes[0], elems);
  const auto contribution = gradient(op.reads[0], setup_.compute, elems);
  const bool first = op.reads.size() == 1;
  if (first) {
    optimizer_.assign(sum, contribution);
  } else {
    optimizer_.accumulate(sum, contribution);
  }
}

void HostOps::add_uses(const OpBytes& op) const {
  const std::uint64_t elems = setup_.segment_elems(op.where.segment);
  optimizer_.add(span_of<float>(op.writes[0], elems), gradient(op.reads[0], DType::kF32, elems),
                 gradient(op.reads[1], DType::kF32, elems));
}

void HostOps::norm(const OpBytes& op) const {
  const std::uint64_t elems = setup_.segment_elems(op.where.segment);
  optimizer_.grain_norms(
      gradient(op.reads[0], schedule::gradient_dtype(setup_, op.where.segment), elems),
      span_of<double>(op.writes[0], elems / kGrainElems));
}

void HostOps::decide(const OpBytes& op) {
  Control& control = as<Control>(op.reads[0]);
  Record& record = as<Record>(op.writes[1]);
  const auto micro_batches = static_cast<std::size_t>(setup_.micro_batches);
  double loss = 0;
  for (std::size_t mb = 0; mb < micro_batches; ++mb) loss += as<double>(op.reads[1 + mb]);
  loss /= static_cast<double>(setup_.tokens_per_step());
  std::vector<std::span<const double>> norms;
  for (std::size_t s = 0; s < setup_.layouts.size(); ++s) {
    norms.push_back(
        span_of<double>(op.reads[1 + micro_batches + s], setup_.layouts[s].elems / kGrainElems));
  }
  const double gnorm = cpu_adam::global_norm(norms);
  const Tag tag = Tag::unpack(op.tag);

  record = {};
  record.step = tag.step;
  record.t = control.applied + 1;
  record.skip = !std::isfinite(loss) || !std::isfinite(gnorm);
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

  if (record.skip) {
    ++control.skipped_in_row;
    const bool stop = rules_.train.on_nonfinite == OnNonFinite::kStop;
    SLUICE_CHECK(!stop && control.skipped_in_row < rules_.train.max_skips, kNonFinite,
                 fmt::format("step {}: loss {}, gradient norm {}; {}; nothing is saved: "
                             "lower optimizer.lr or look at the data",
                             tag.step + 1, loss, gnorm,
                             stop ? "train.on_nonfinite is stop"
                                  : fmt::format("{} skipped steps in a row, train.max_skips is {}",
                                                control.skipped_in_row, rules_.train.max_skips)));
  } else {
    control.applied = record.t;
    control.skipped_in_row = 0;
  }
  const std::lock_guard lock(mutex_);
  steps_[tag.step] = {loss, gnorm, lr, clip, record.skip};
}

void HostOps::adam(const OpBytes& op) const {
  const Record& record = *op.record;
  const zero::Chunk& c = chunk(op.where);
  const cpu_adam::State state = state_of(op.writes[0], c.elems);
  const DType dtype = schedule::gradient_dtype(setup_, op.where.segment);
  cpu_adam::Hyper hyper{.mode = rules_.optimizer.type == OptimizerType::kAdamW
                                    ? cpu_adam::Mode::kAdamW
                                    : cpu_adam::Mode::kAdam,
                        .lr = record.lr,
                        .beta1 = static_cast<float>(rules_.optimizer.betas[0]),
                        .beta2 = static_cast<float>(rules_.optimizer.betas[1]),
                        .eps = static_cast<float>(rules_.optimizer.eps),
                        .bias_correction1 = record.bias_correction1,
                        .bias_correction2 = record.bias_correction2,
                        .clip = record.clip};
  // A gradient on the host is the whole segment's; one copied from the device is this chunk's.
  const bool whole = setup_.homes.offload_gradient == schedule::GradientHome::kCpu ||
                     setup_.sharing == schedule::Sharing::kUnified;
  const std::byte* grad = op.reads[1] + (whole ? c.first_elem * size_of(dtype) : 0);
  for (const zero::Run& run : zero::runs(setup_.model.segments[index(op.where.segment)],
                                         setup_.layouts[index(op.where.segment)], c)) {
    const std::uint64_t at = run.first_elem - c.first_elem;
    hyper.weight_decay = run.decayed ? static_cast<float>(rules_.optimizer.weight_decay) : 0.0F;
    optimizer_.update(hyper,
                      {state.master.subspan(at, run.elems), state.m.subspan(at, run.elems),
                       state.v.subspan(at, run.elems)},
                      gradient(grad + at * size_of(dtype), dtype, run.elems),
                      published(op.writes[1], at, run.elems));
  }
}

void HostOps::report_loss(const OpBytes& op) {
  double loss = 0;
  for (std::byte* bytes : op.reads) loss += as<double>(bytes);
  loss /= static_cast<double>(op.reads.size()) * static_cast<double>(setup_.micro_batch_tokens());
  const std::lock_guard lock(mutex_);
  evaluations_[Tag::unpack(op.tag).step] = loss;
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
