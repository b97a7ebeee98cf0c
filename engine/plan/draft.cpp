#include "engine/plan/draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/plan/slots.h"
#include "engine/schedule/ops.h"

namespace sluice::plan {
namespace {

using prefetch::PoolId;
using prefetch::Tier;
using schedule::Setup;

/// Bytes of state per chunk that auto chooses from, the one to prefer first.
constexpr std::array<Bytes, 5> kChunkSizes = {32_MiB, 16_MiB, 64_MiB, 8_MiB, 4_MiB};

Bytes beyond(Bytes need, Bytes limit) {
  return need - std::min(need, limit);
}

/// Slots per pool that the serial run of every program needs.
Slots serial_slots(const Plan& plan) {
  const auto& pools = plan.catalog.pools;
  prefetch::Initialised initialised(*plan.catalog.residents);
  Slots slots(pools.size(), 0);
  for (const auto& program : plan.programs.in_order()) {
    const auto minimum = prefetch::serial_minimum(*program, pools, plan.lanes, initialised);
    for (PoolId i = 0; i < slots.size(); ++i) slots[i] = std::max(slots[i], minimum.slots[i]);
  }
  return slots;
}

}  // namespace

Plan write_draft(const Setup& setup, std::int64_t evaluation_batches) {
  const std::uint64_t forwards =
      static_cast<std::uint64_t>(setup.micro_batches) * setup.model.blocks.size();
  SLUICE_CHECK(forwards <= schedule::kMaxForwards, kConfig,
               fmt::format("{} micro-batches of {} blocks are {} forwards in one step, at most {} "
                           "are planned: lower train.gradient_accumulation_steps",
                           setup.micro_batches, setup.model.blocks.size(), forwards,
                           schedule::kMaxForwards));
  const std::uint64_t most_batches = schedule::kMaxEvaluationForwards / setup.model.blocks.size();
  SLUICE_CHECK(
      static_cast<std::uint64_t>(evaluation_batches) <= most_batches, kConfig,
      fmt::format("an evaluation of {} micro-batches of {} blocks, at most {} are planned: "
                  "lower eval.batches, or raise train.train_micro_batch_size_per_gpu",
                  evaluation_batches, setup.model.blocks.size(), most_batches));
  Plan plan;
  plan.setup = setup;
  plan.catalog = schedule::make_catalog(setup);
  plan.lanes = schedule::make_lanes();
  plan.programs.init = schedule::init_program(setup, plan.catalog);
  plan.programs.step = schedule::step_program(setup, plan.catalog);
  if (evaluation_batches > 0) {
    plan.programs.evaluation =
        schedule::evaluation_program(setup, plan.catalog, evaluation_batches);
  }
  plan.programs.final = schedule::final_program(setup, plan.catalog);
  plan.minimum_slots = serial_slots(plan);
  for (PoolId i = 0; i < plan.minimum_slots.size(); ++i) {
    plan.catalog.pools[i].slots = plan.minimum_slots[i];
  }
  plan.minimum = plan.planned = bytes_by_tier(plan.catalog.pools, plan.minimum_slots);
  return plan;
}

std::vector<Setup> chunk_choices(const Setup& setup) {
  if (setup.homes.sub_group_size) return {setup};
  std::vector<Setup> choices;
  const auto is_new = [&](const Setup& s) {
    return std::none_of(choices.begin(), choices.end(),
                        [&](const Setup& other) { return other.chunks == s.chunks; });
  };
  for (const Bytes size : kChunkSizes) {
    Setup choice = schedule::with_chunks(setup, size);
    if (choice.chunk_count() <= kEnoughChunks && is_new(choice))
      choices.push_back(std::move(choice));
  }
  if (choices.empty()) {
    choices.push_back(
        schedule::with_chunks(setup, *std::max_element(kChunkSizes.begin(), kChunkSizes.end())));
  }
  return choices;
}

Bytes missing_in(Tier tier, const Plan& draft, const Limits& limits) {
  return beyond(draft.minimum[index(tier)], limits.tiers[index(tier)]);
}

Bytes missing_of_host(const Plan& draft, const Limits& limits) {
  return beyond(draft.minimum[index(Tier::kGpu)] + draft.minimum[index(Tier::kCpu)], limits.host);
}

Bytes missing(const Plan& draft, const Limits& limits) {
  const auto of = [&](Tier tier) { return missing_in(tier, draft, limits); };
  return std::max(of(Tier::kGpu) + of(Tier::kCpu), missing_of_host(draft, limits)) +
         of(Tier::kNvme);
}

}  // namespace sluice::plan
