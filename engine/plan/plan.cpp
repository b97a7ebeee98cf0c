#include "engine/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/schedule/ops.h"

namespace sluice::plan {
namespace {

using prefetch::MemoryTag;
using prefetch::PoolId;
using prefetch::Tier;
using schedule::Setup;

std::size_t index(Tier tier) {
  return static_cast<std::size_t>(tier);
}

/// Slots per pool that the serial run of every program needs.
std::vector<std::uint32_t> minimum_slots(const Plan& plan) {
  const auto& pools = plan.catalog.pools;
  prefetch::Initialised initialised(*plan.catalog.residents);
  std::vector<std::uint32_t> slots(pools.size(), 0);
  const Programs& p = plan.programs;
  for (const auto& program : {p.init, p.step, p.evaluation, p.final}) {
    if (!program) continue;
    const auto minimum = prefetch::serial_minimum(*program, pools, plan.lanes, initialised);
    for (PoolId i = 0; i < slots.size(); ++i) slots[i] = std::max(slots[i], minimum.slots[i]);
  }
  return slots;
}

/// Beyond this many slots a pool has nothing left to run ahead with: all that one program defines
/// in it, twice (two programs are in flight), and its persistents.
std::vector<std::uint32_t> useful_slots(const Plan& plan) {
  std::vector<std::uint32_t> slots(plan.catalog.pools.size(), 0);
  const auto count = [&](const prefetch::BufferTable& table, std::uint32_t times) {
    for (const auto id : table.roots()) {
      const PoolId pool = table.info(id).pool;
      if (pool != prefetch::kNoPool) slots[pool] += times;
    }
  };
  count(*plan.catalog.residents, 1);
  count(plan.programs.step->transients(), 2);
  return slots;
}

std::string advice(const Setup& setup, Tier tier, MemoryTag largest) {
  switch (largest) {
    case MemoryTag::kParam:
      if (tier == Tier::kGpu && setup.homes.offload_param == schedule::ParamHome::kNone) {
        return "set zero_optimization.offload_param.device: cpu";
      }
      return "use a smaller model";
    case MemoryTag::kGradient:
      if (tier == Tier::kGpu && setup.homes.offload_gradient == schedule::GradientHome::kNone) {
        return "set zero_optimization.offload_gradient.device: cpu";
      }
      return "use precision.compute: bf16 with one micro-batch, or a smaller model";
    case MemoryTag::kState:
      if (tier == Tier::kCpu && setup.homes.offload_optimizer == schedule::OptimizerHome::kCpu) {
        return "set zero_optimization.offload_optimizer.device: nvme";
      }
      return tier == Tier::kNvme ? "free space there or name more tiers.nvme.paths"
                                 : "lower zero_optimization.sub_group_size";
    default:
      return "lower train.train_micro_batch_size_per_gpu or data.seq_len";
  }
}

[[noreturn]] void refuse(const Setup& setup, const Plan& plan, Tier tier) {
  std::array<Bytes, prefetch::kMemoryTags> by_tag{};
  for (std::size_t i = 0; i < plan.catalog.pools.size(); ++i) {
    const auto& pool = plan.catalog.pools[i];
    if (pool.tier == tier)
      by_tag[static_cast<std::size_t>(plan.catalog.tags[i])] += pool.slot * pool.slots;
  }
  const auto largest =
      static_cast<MemoryTag>(std::max_element(by_tag.begin(), by_tag.end()) - by_tag.begin());
  const Bytes need = plan.minimum[index(tier)];
  const Bytes have = plan.limits[index(tier)];
  std::string classes;
  for (std::size_t tag = 0; tag < by_tag.size(); ++tag) {
    if (by_tag[tag] == 0) continue;
    classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ",
                           name_of(static_cast<MemoryTag>(tag)), format_bytes(by_tag[tag]));
  }
  throw Error(
      Errc::kBudget,
      fmt::format("the {} tier is too small: the smallest plan needs {} ({}), tiers.{}.limit "
                  "gives {}: {} ({} B) short; raise the limit, or {}",
                  name_of(tier), format_bytes(need), classes, name_of(tier), format_bytes(have),
                  format_bytes(need - have), need - have, advice(setup, tier, largest)));
}

Limits bytes_by_tier(const prefetch::Pools& pools) {
  Limits bytes{};
  for (const auto& pool : pools) bytes[index(pool.tier)] += pool.slot * pool.slots;
  return bytes;
}

/// One slot at a time to the pool that is furthest below its target; ties in order of declaration.
void widen(Plan& plan, const std::vector<std::uint32_t>& minimum) {
  const std::vector<std::uint32_t> useful = useful_slots(plan);
  auto& pools = plan.catalog.pools;
  while (true) {
    PoolId best = prefetch::kNoPool;
    double lowest = 1.0;
    for (PoolId i = 0; i < pools.size(); ++i) {
      const auto& pool = pools[i];
      const auto half = static_cast<std::uint32_t>(div_ceil(minimum[i], 2));
      const std::uint32_t target = std::min(useful[i], minimum[i] + std::max(2U, half));
      if (minimum[i] == 0 || pool.slots >= target) continue;
      if (plan.planned[index(pool.tier)] + pool.slot > plan.limits[index(pool.tier)]) continue;
      const double share = static_cast<double>(pool.slots) / target;
      if (share < lowest) {
        lowest = share;
        best = i;
      }
    }
    if (best == prefetch::kNoPool) return;
    ++pools[best].slots;
    plan.planned[index(pools[best].tier)] += pools[best].slot;
  }
}

}  // namespace

Plan make_plan(const Setup& setup, const Limits& limits, std::int64_t evaluation_batches) {
  const std::uint64_t forwards =
      static_cast<std::uint64_t>(setup.micro_batches) * setup.model.blocks.size();
  SLUICE_CHECK(forwards <= schedule::kMaxForwards, kConfig,
               fmt::format("{} micro-batches of {} blocks are {} forwards in one step, at most {} "
                           "are planned: lower train.gradient_accumulation_steps",
                           setup.micro_batches, setup.model.blocks.size(), forwards,
                           schedule::kMaxForwards));
  Plan plan;
  plan.limits = limits;
  plan.catalog = schedule::make_catalog(setup);
  plan.lanes = schedule::make_lanes();
  plan.programs.init = schedule::init_program(setup, plan.catalog);
  plan.programs.step = schedule::step_program(setup, plan.catalog);
  if (evaluation_batches > 0) {
    plan.programs.evaluation =
        schedule::evaluation_program(setup, plan.catalog, evaluation_batches);
  }
  plan.programs.final = schedule::final_program(setup, plan.catalog);

  const std::vector<std::uint32_t> minimum = minimum_slots(plan);
  for (PoolId i = 0; i < minimum.size(); ++i) plan.catalog.pools[i].slots = minimum[i];
  plan.minimum = plan.planned = bytes_by_tier(plan.catalog.pools);
  for (const Tier tier : {Tier::kGpu, Tier::kCpu, Tier::kNvme}) {
    if (plan.minimum[index(tier)] > limits[index(tier)]) refuse(setup, plan, tier);
  }
  widen(plan, minimum);

  prefetch::Initialised initialised(*plan.catalog.residents);
  const Programs& p = plan.programs;
  for (const auto& program : {p.init, p.step, p.evaluation, p.final}) {
    if (program) prefetch::check(*program, plan.catalog.pools, plan.lanes, initialised);
  }
  return plan;
}

}  // namespace sluice::plan
