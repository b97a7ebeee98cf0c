#include "engine/train/arithmetic_ops.h"

#include <fmt/format.h>

#include <span>
#include <type_traits>
#include <variant>

#include "engine/base/error.h"
#include "engine/train/record.h"

namespace sluice::train {

using schedule::Operand;
using schedule::OpId;

namespace {

cpu_adam::Mode mode_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::kAdamW:
      return cpu_adam::Mode::kAdamW;
    case OptimizerType::kAdam:
      return cpu_adam::Mode::kAdam;
  }
  throw Error(Errc::kLogic, "an optimizer of no type");
}

}  // namespace

cpu_adam::Values as_gradient(OpBytes::Bytes bytes, DType dtype) {
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

cpu_adam::Published as_weights(OpBytes::Bytes bytes, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return OpBytes::as<float>(bytes);
    case DType::kBf16:
      return OpBytes::as<Bf16>(bytes);
    case DType::kF16:
      return OpBytes::as<Fp16>(bytes);
  }
  throw Error(Errc::kLogic, "weights of no dtype");
}

cpu_adam::Gradient part(const cpu_adam::Gradient& all, std::uint64_t first, std::uint64_t elems) {
  const auto of = [&](const cpu_adam::Values& values) {
    return std::visit([&](auto span) -> cpu_adam::Values { return span.subspan(first, elems); },
                      values);
  };
  return all.more ? cpu_adam::Gradient(of(all.values), of(*all.more)) : of(all.values);
}

cpu_adam::Published part(const cpu_adam::Published& all, std::uint64_t first, std::uint64_t elems) {
  const auto subspan = [&](const auto& span) -> cpu_adam::Published {
    if constexpr (std::is_same_v<decltype(span), const std::monostate&>) {
      return span;
    } else {
      return span.subspan(first, elems);
    }
  };
  return std::visit(subspan, all);
}

cpu_adam::State part(const cpu_adam::State& all, std::uint64_t first, std::uint64_t elems) {
  return {all.master.subspan(first, elems), all.m.subspan(first, elems),
          all.v.subspan(first, elems)};
}

cpu_adam::SplitState part(const cpu_adam::SplitState& all, std::uint64_t first,
                          std::uint64_t elems) {
  return {all.low.subspan(first, elems), all.weights.subspan(first, elems),
          all.m.subspan(first, elems), all.v.subspan(first, elems)};
}

cpu_adam::State state_of(const OpBytes& op) {
  const auto all = op.values<float>(Operand::kState);
  const std::size_t n = all.size() / 3;
  return {all.first(n), all.subspan(n, n), all.last(n)};
}

cpu_adam::SplitState split_state(OpBytes::Bytes state, std::span<const Bf16> weights,
                                 std::size_t elems) {
  const Bytes low = elems * sizeof(std::uint16_t);
  const auto v_and_m = OpBytes::as<float>(state.subspan(low));
  return {OpBytes::as<std::uint16_t>(state.first(low)), weights, v_and_m.subspan(elems),
          v_and_m.first(elems)};
}

cpu_adam::Published fresh_of(const OpBytes& op, DType dtype, std::uint64_t first,
                             std::uint64_t elems) {
  return part(as_weights(op[Operand::kFresh], dtype), first, elems);
}

template <class Arithmetic>
void ArithmeticOps::run_by(const Arithmetic& arithmetic, const OpBytes& op) const {
  const auto contribution = [&] { return as_gradient(op[Operand::kContribution], setup_.compute); };
  const auto sum = [&] { return op.values<float>(Operand::kSum); };
  switch (op.id) {
    case OpId::kStartSum:
      return arithmetic.assign(sum(), contribution());
    case OpId::kAccumulate:
      return arithmetic.accumulate(sum(), contribution());
    case OpId::kAddUses:
      return arithmetic.add(sum(), std::span<const float>(sum()),
                            op.values<const float>(Operand::kOtherUse));
    case OpId::kNorm:
      return arithmetic.grain_norms(gradient(op), op.values<double>(Operand::kNorms));
    case OpId::kAdam:
      return adam(arithmetic, op);
    default:
      throw Error(Errc::kLogic, fmt::format("'{}' is no arithmetic", kind_of(op.id).name));
  }
}

cpu_adam::Gradient ArithmeticOps::gradient(const OpBytes& op) const {
  const auto terms = op.all(Operand::kGradient);
  const DType dtype = routes_[index(op.where.segment)].dtype;
  SLUICE_CHECK(terms.size() == 1 || terms.size() == 2, kLogic,
               fmt::format("'{}': a gradient has 1 term or 2, this one {}", kind_of(op.id).name,
                           terms.size()));
  const cpu_adam::Values first = as_gradient(terms.front(), dtype);
  if (terms.size() == 1) return first;
  return {first, as_gradient(terms.back(), dtype)};
}

void ArithmeticOps::run(const OpBytes& op, const cpu_adam::Optimizer& host) const {
  if (op.id == OpId::kAdamSplit) return adam_split(host, op);
  run_by(host, op);
}

void ArithmeticOps::run(const OpBytes& op, const gpu::Arithmetic& device) const {
  run_by(device, op);
}

template <class Arithmetic>
void ArithmeticOps::adam(const Arithmetic& arithmetic, const OpBytes& op) const {
  const cpu_adam::State state = state_of(op);
  for_runs(op, [&](const cpu_adam::Hyper& hyper, std::uint64_t at, std::uint64_t elems) {
    arithmetic.update(hyper, part(state, at, elems), part(gradient(op), at, elems),
                      fresh_of(op, setup_.compute, at, elems));
  });
}

void ArithmeticOps::adam_split(const cpu_adam::Optimizer& host, const OpBytes& op) const {
  const auto weights = op.values<const Bf16>(Operand::kWeights);
  const auto fresh = op.values<Bf16>(Operand::kFresh);
  const cpu_adam::SplitState state = split_state(op[Operand::kState], weights, weights.size());
  for_runs(op, [&](const cpu_adam::Hyper& hyper, std::uint64_t at, std::uint64_t elems) {
    host.update(hyper, part(state, at, elems), part(gradient(op), at, elems),
                fresh.subspan(at, elems));
  });
}

template <class Update>
void ArithmeticOps::for_runs(const OpBytes& op, const Update& update) const {
  const Record& record = op.values<const Record>(Operand::kRecord).front();
  const zero::Chunk& c = setup_.chunks[index(op.where.segment)][index(op.where.chunk)];
  cpu_adam::Hyper hyper{.mode = mode_of(options_.type),
                        .lr = record.lr,
                        .beta1 = static_cast<float>(options_.betas[0]),
                        .beta2 = static_cast<float>(options_.betas[1]),
                        .eps = static_cast<float>(options_.eps),
                        .bias_correction1 = record.bias_correction1,
                        .bias_correction2 = record.bias_correction2,
                        .clip = record.clip};
  for (const zero::Run& run : zero::runs(setup_.model->segments[index(op.where.segment)],
                                         setup_.layouts[index(op.where.segment)], c)) {
    const std::uint64_t at = run.first_elem - c.first_elem;
    hyper.weight_decay = run.decayed ? static_cast<float>(options_.weight_decay) : 0.0F;
    update(hyper, at, run.elems);
  }
}

}  // namespace sluice::train
