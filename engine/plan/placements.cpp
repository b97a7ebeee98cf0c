#include "engine/plan/placements.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/plan/draft.h"
#include "engine/schedule/ops.h"

namespace sluice::plan {
namespace {

using schedule::ActivationHome;
using schedule::GradientHome;
using schedule::OptimizerHome;
using schedule::ParamHome;
using schedule::Recompute;
using schedule::Setup;

/// Chunks of a suggested placement where the file's own would be too large.
constexpr Bytes kSmallChunk = 4_MiB;

/// Every other placement of the same step.
std::vector<Setup> alternatives(const Setup& setup) {
  std::vector<Setup> all;
  for (const auto param : {ParamHome::kNone, ParamHome::kCpu, ParamHome::kNvme}) {
    for (const auto gradient : {GradientHome::kNone, GradientHome::kCpu}) {
      for (const auto state : {OptimizerHome::kNone, OptimizerHome::kCpu, OptimizerHome::kNvme}) {
        for (const auto activation :
             {ActivationHome::kNone, ActivationHome::kCpu, ActivationHome::kNvme}) {
          Setup other = setup;
          other.homes.offload_param = param;
          other.homes.offload_gradient = gradient;
          other.homes.offload_optimizer = state;
          other.homes.offload_activation = activation;
          if (other.homes.recompute == Recompute::kNone) other.homes.recompute = Recompute::kAuto;
          other.kept_layers = 0;
          other.keeps_logits = false;
          all.push_back(std::move(other));
        }
      }
    }
  }
  return all;
}

/// Bytes that one step moves between tiers.
Bytes traffic(const Plan& draft) {
  using schedule::LaneKind;
  Bytes bytes = 0;
  for (const LaneKind lane : {LaneKind::kHostToDevice, LaneKind::kDeviceToHost, LaneKind::kNvmeRead,
                              LaneKind::kNvmeWrite}) {
    bytes += moved(*draft.programs.step, lane);
  }
  return bytes;
}

/// One placement, with the chunks that it has and with small ones.
std::vector<Setup> cuts_of(const Setup& setup, std::int64_t evaluation_batches) {
  std::vector<Setup> cuts = {setup};
  if (setup.homes.sub_group_size.value_or(0) > kSmallChunk) {
    Setup small = schedule::with_chunks(setup, kSmallChunk);
    if (small.chunk_count() <= kEnoughChunks) cuts.push_back(std::move(small));
  }
  std::erase_if(
      cuts, [&](const Setup& cut) { return most_work(cut, evaluation_batches) > kLongestDraft; });
  return cuts;
}

bool fits(const Setup& setup, const Limits& limits, std::int64_t evaluation_batches,
          Budget& budget) {
  const auto smallest = smallest_draft(setup, limits, evaluation_batches, budget);
  return smallest && missing(*smallest, limits) == 0;
}

}  // namespace

Search search(const Plan& draft, std::int64_t evaluation_batches, Wanted wanted,
              const Budget& budget) {
  Search found{std::nullopt, draft};
  Bytes least = kEndless;
  Budget half(budget.left() / 2);
  using schedule::Update;
  const Update update = draft.setup.update == Update::kEnd ? Update::kArriving : Update::kEnd;
  const bool free = !draft.setup.begins_pending;  // only a delayed run applies what waits
  if (free && fits(with_update(draft.setup, update), draft.limits, evaluation_batches, half)) {
    found.update = update;
  }
  std::vector<Setup> others = alternatives(draft.setup);
  if (wanted == Wanted::kAny) std::ranges::reverse(others);
  for (const Setup& other : others) {
    for (const Setup& cut : cuts_of(other, evaluation_batches)) {
      auto plan = write_draft(cut, evaluation_batches, half);
      if (!plan) {
        found.complete = false;
        return found;
      }
      plan->limits = draft.limits;
      const Bytes lacking = missing(*plan, draft.limits);
      if (lacking < missing(found.nearest, draft.limits)) found.nearest = *plan;
      if (lacking > 0) continue;
      const Bytes bytes = traffic(*plan);
      if (bytes < least) {
        least = bytes;
        found.fitting = std::move(plan);
        if (wanted == Wanted::kAny) return found;
      }
      break;
    }
  }
  return found;
}

std::vector<std::string> settings(const schedule::Options& from, const schedule::Options& to) {
  std::vector<std::string> lines;
  const auto say = [&](const char* name, const auto& home) {
    lines.push_back(fmt::format("zero_optimization.{}.device: {}", name, schedule::name_of(home)));
  };
  const auto differ = [&](const char* name, const auto& a, const auto& b) {
    if (a != b) say(name, b);
  };
  differ("offload_param", from.offload_param, to.offload_param);
  // A file that leaves it open has gradients where the optimizer works: then it must be said.
  const bool moves = from.offload_optimizer != to.offload_optimizer;
  if (moves || from.offload_gradient != to.offload_gradient) {
    say("offload_gradient", *to.offload_gradient);
  }
  differ("offload_optimizer", from.offload_optimizer, to.offload_optimizer);
  differ("offload_activation", from.offload_activation, to.offload_activation);
  if (from.recompute != to.recompute) lines.emplace_back("activation_checkpointing.policy: auto");
  if (from.sub_group_size != to.sub_group_size) {
    lines.push_back(
        fmt::format("zero_optimization.sub_group_size: {}MiB", *to.sub_group_size >> 20));
  }
  return lines;
}

}  // namespace sluice::plan
