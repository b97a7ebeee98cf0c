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
using schedule::Update;

/// Bytes of state per chunk that auto chooses from, the one to prefer first.
constexpr std::array<Bytes, kChunkChoices> kChunkSizes = {32_MiB, 16_MiB, 64_MiB, 8_MiB, 4_MiB};

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

void require_plannable(const Setup& setup, std::int64_t evaluation_batches) {
  const std::uint64_t blocks = setup.model->blocks.size();
  const auto micro_batches = static_cast<std::uint64_t>(setup.micro_batches);
  SLUICE_CHECK(micro_batches <= schedule::kMaxForwards / blocks, kConfig,
               fmt::format("one step has more forwards than are planned: lower "
                           "train.gradient_accumulation_steps\n"
                           "  {} micro-batches of {} blocks, at most {} forwards",
                           micro_batches, blocks, schedule::kMaxForwards));
  SLUICE_CHECK(
      static_cast<std::uint64_t>(evaluation_batches) <= schedule::kMaxEvaluationForwards / blocks,
      kConfig,
      fmt::format("an evaluation has more forwards than are planned: lower eval.batches, "
                  "or raise\ntrain.train_micro_batch_size_per_gpu\n"
                  "  {} micro-batches of {} blocks, at most {} forwards",
                  evaluation_batches, blocks, schedule::kMaxEvaluationForwards));
  const std::uint64_t work = most_work(setup, evaluation_batches);
  SLUICE_CHECK(work <= kLongestDraft, kConfig,
               fmt::format("the programs of this run are longer than is planned: raise "
                           "zero_optimization.sub_group_size,\n"
                           "or lower train.gradient_accumulation_steps or eval.batches\n"
                           "  {} micro-batches, {} to evaluate, {} chunks of the optimizer: {}% of "
                           "the longest",
                           micro_batches, evaluation_batches, setup.chunk_count(),
                           div_ceil(100 * work, kLongestDraft)));
}

bool plannable(const Setup& setup, std::int64_t evaluation_batches) {
  return most_work(setup, evaluation_batches) <= kLongestDraft;
}

void write_steps(Plan& plan) {
  using schedule::Applies;
  const auto step = [&](Applies applies) {
    return schedule::step_program(plan.setup, plan.catalog, applies);
  };
  plan.programs.step = step(plan.setup.delays() ? Applies::kLast : Applies::kOwn);
  if (!plan.setup.delays()) return;
  plan.programs.delayed = {
      step(Applies::kOwn), step(Applies::kNone), schedule::drain_program(plan.setup, plan.catalog),
      schedule::checkpoint_program(plan.setup, plan.catalog, schedule::Saves::kGradientToo)};
}

/// Those of which one takes the least memory: activations grow with the micro-batches that go
/// together, new weights that wait with those that do not.
std::vector<Setup> extreme_sweeps(const Setup& setup, std::int64_t evaluation_batches) {
  std::vector<Setup> choices = sweep_choices(setup, evaluation_batches);
  if (!setup.delays() || choices.size() == 1) return {std::move(choices.back())};
  return {std::move(choices.back()), std::move(choices.front())};
}

std::optional<Plan> smallest_of(const Setup& setup, const Limits& limits,
                                std::int64_t evaluation_batches, Budget& budget) {
  std::optional<Plan> smallest;
  for (const Setup& choice : chunk_choices(setup, evaluation_batches)) {
    smallest.reset();  // the last choice of chunks is to be told of
    for (const Setup& sweep : extreme_sweeps(choice, evaluation_batches)) {
      auto draft = write_draft(sweep, evaluation_batches, budget);
      if (!draft) return std::nullopt;
      draft->limits = limits;
      if (!smallest || missing(*draft, limits) < missing(*smallest, limits)) {
        smallest = std::move(draft);
      }
      if (missing(*smallest, limits) == 0) return smallest;
    }
  }
  return smallest;
}

}  // namespace

std::optional<Plan> write_draft(const Setup& setup, std::int64_t evaluation_batches,
                                Budget& budget) {
  require_plannable(setup, evaluation_batches);
  if (!budget.affords(most_work(setup, evaluation_batches))) return std::nullopt;
  Plan plan;
  plan.setup = setup;
  plan.catalog = schedule::make_catalog(setup);
  plan.lanes = schedule::make_lanes();
  plan.programs.init = schedule::init_program(setup, plan.catalog);
  write_steps(plan);
  if (evaluation_batches > 0) {
    plan.programs.evaluation =
        schedule::evaluation_program(setup, plan.catalog, evaluation_batches);
  }
  plan.programs.checkpoint =
      schedule::checkpoint_program(setup, plan.catalog, schedule::Saves::kState);
  plan.programs.final = schedule::final_program(setup, plan.catalog);
  budget.spend(work_of(plan));
  plan.minimum_slots = serial_slots(plan);
  for (PoolId i = 0; i < plan.minimum_slots.size(); ++i) {
    plan.catalog.pools[i].slots = plan.minimum_slots[i];
  }
  plan.minimum = plan.planned = bytes_by_tier(plan.catalog.pools, plan.minimum_slots);
  return plan;
}

std::vector<Setup> chunk_choices(const Setup& setup, std::int64_t evaluation_batches) {
  if (setup.homes.sub_group_size) return {setup};
  std::vector<Setup> choices;
  const auto is_new = [&](const Setup& s) {
    return std::none_of(choices.begin(), choices.end(),
                        [&](const Setup& other) { return other.chunks == s.chunks; });
  };
  for (const Bytes size : kChunkSizes) {
    Setup choice = schedule::with_chunks(setup, size);
    if (choice.chunk_count() <= kEnoughChunks && plannable(choice, evaluation_batches) &&
        is_new(choice)) {
      choices.push_back(std::move(choice));
    }
  }
  if (choices.empty()) {
    choices.push_back(
        schedule::with_chunks(setup, *std::max_element(kChunkSizes.begin(), kChunkSizes.end())));
  }
  return choices;
}

std::vector<Setup> update_choices(const Setup& setup) {
  const bool may_pick = setup.picks_update && setup.may_arrive;
  if (may_pick) return {with_update(setup, Update::kArriving), with_update(setup, Update::kEnd)};
  return {setup.update == Update::kEnd ? setup : with_update(setup, setup.update)};
}

Setup with_update(Setup setup, Update update) {
  setup.update = update;
  setup.picks_update = false;
  setup.begins_pending = setup.begins_pending && setup.delays();
  const bool together = update != Update::kEnd || setup.streams_params();
  setup.sweep = together ? setup.micro_batches : 1;
  return setup;
}

std::vector<Setup> sweep_choices(const Setup& setup, std::int64_t evaluation_batches) {
  std::vector<Setup> choices = {setup};
  const bool fewer_help = setup.streams_params() || setup.delays();
  if (!fewer_help || setup.update == Update::kArriving) return choices;
  Setup fewer = setup;
  while (fewer.sweep > 1) {
    fewer.sweep = (fewer.sweep + 1) / 2;
    if (!plannable(fewer, evaluation_batches)) break;
    choices.push_back(fewer);
  }
  return choices;
}

std::optional<Plan> smallest_draft(const Setup& setup, const Limits& limits,
                                   std::int64_t evaluation_batches, Budget& budget) {
  std::optional<Plan> smallest;
  for (const Setup& choice : update_choices(setup)) {
    auto draft = smallest_of(choice, limits, evaluation_batches, budget);
    if (!draft) continue;
    if (!smallest || missing(*draft, limits) < missing(*smallest, limits)) {
      smallest = std::move(draft);
    }
    if (missing(*smallest, limits) == 0) break;
  }
  return smallest;
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
