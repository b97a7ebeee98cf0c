#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/plan/plan.h"

namespace sluice::plan {
namespace {

using prefetch::Tier;
using schedule::LaneKind;
using schedule::Setup;

std::string tiers(const Plan& plan) {
  std::string text;
  for (const Tier tier : prefetch::kTiers) {
    const std::size_t i = index(tier);
    if (plan.planned[i] == 0) continue;
    text += fmt::format("{}{:<4} tier: serial minimum {}, planned {} of {}",
                        text.empty() ? "" : "\n", name_of(tier), format_bytes(plan.minimum[i]),
                        format_bytes(plan.planned[i]), format_bytes(plan.limits.tiers[i]));
  }
  return text;
}

/// Only pools that something moves through: what lies at home has as many slots as it needs.
std::string slots(const Plan& plan) {
  std::vector<bool> moves(plan.catalog.pools.size(), false);
  if (!plan.programs.step) return {};
  const auto& transients = plan.programs.step->transients();
  for (const auto id : transients.roots()) {
    const auto pool = transients.info(id).pool;
    if (pool != prefetch::kNoPool) moves[pool] = true;
  }
  std::string text;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto& pool = plan.catalog.pools[i];
    if (!moves[i] || pool.slot < 64_KiB) continue;
    text += fmt::format("\n  {:>5} slots (serial minimum {}) of {}", pool.slots,
                        plan.minimum_slots[i], pool.name);
  }
  return text;
}

/// What a step asks of each lane that moves bytes, whatever the model's size.
std::string moves(const Plan& plan) {
  if (!plan.programs.step || plan.setup.model->segments.empty()) return {};
  std::vector<double> bytes(plan.lanes.size(), 0.0);
  for (const prefetch::Op& op : plan.programs.step->ops()) bytes[op.lane] += op.cost.bytes;
  std::string text = "\neach step moves, in bytes per parameter:";
  const char* comma = " ";
  for (std::size_t lane = 0; lane < bytes.size(); ++lane) {
    const double each = bytes[lane] / static_cast<double>(plan.setup.model->parameters());
    if (each < 0.05) continue;
    text += fmt::format("{}{} {:.1f}", comma, plan.lanes[lane].name, each);
    comma = ", ";
  }
  return text;
}

/// Of micro-batches as they are: smaller ones do not compute for so much shorter.
std::string hidden(const Plan& plan) {
  const auto& tokens = plan.forecast.hiding.tokens;
  if (plan.forecast.hiding.op_by_op) return "nothing is computed meanwhile";
  if (!tokens) return "with more tokens a step they only take longer than computing";
  const auto each = static_cast<double>(plan.setup.micro_batch_tokens());
  if (*tokens <= each) return "computing takes longer, of one micro-batch too";
  return fmt::format("computing takes as long at {:.0f} tokens a step, {:.0f} in each micro-batch",
                     *tokens, each);
}

/// In powers of ten, as the data sheets of drives have what wears them (TBW).
std::string drives(const Plan& plan, std::optional<Bytes> endurance) {
  constexpr double kDay = 24 * 60 * 60;
  if (!plan.programs.step) return {};
  const auto gb = [&](LaneKind lane) {
    return 1e-9 * static_cast<double>(moved(*plan.programs.step, lane));
  };
  const double read = gb(LaneKind::kNvmeRead), written = gb(LaneKind::kNvmeWrite);
  if (read + written == 0) return {};
  const Forecast& f = plan.forecast;
  std::string text = fmt::format(
      "\ndrives: {:.3g} GB read and {:.3g} GB written each step, {:.3g} TB a day at that pace"
      "\ndrives: {:.3g} s of each step; {}",
      read, written, 1e-3 * written / f.seconds() * kDay, f.hiding.drives_s, hidden(plan));
  if (endurance && written > 0) {
    const double steps = std::floor(1e-9 * static_cast<double>(*endurance) / written);
    text += fmt::format(
        "\ndrives: {} of writes are used up after {:.0f} steps, {:.3g} days at that pace",
        format_endurance(*endurance), steps, steps * f.seconds() / kDay);
  }
  return text;
}

/// Where weights are streamed, and there is a choice.
std::string sweep(const Plan& plan) {
  const Setup& setup = plan.setup;
  const bool fixed = !setup.streams_params() && setup.update == schedule::Update::kEnd;
  if (fixed || setup.micro_batches == 1) return {};
  const auto times = div_ceil(static_cast<std::uint64_t>(setup.micro_batches),
                              static_cast<std::uint64_t>(setup.sweep));
  std::string together = fmt::format("\n{} of {} micro-batches go through the layers together",
                                     setup.sweep, setup.micro_batches);
  if (!setup.streams_params()) return together;
  return together + fmt::format(": weights are fetched {} a step, for forward and for backward",
                                times == 1 ? "once" : fmt::format("{} times", times));
}

std::string kept(const Plan& plan) {
  const Setup& setup = plan.setup;
  std::string text;
  if (setup.kept_layers > 0) {
    text += fmt::format("\n{} of {} layers keep their forward for backward", setup.kept_layers,
                        setup.model->decoder.layers);
  }
  if (setup.keeps_logits) {
    text += fmt::format("\nthe head keeps its logits, {}, for its backward",
                        format_bytes(setup.logits));
  }
  return text;
}

/// Less than this is noise of the measurement.
constexpr double kNoise = 0.01;

std::string times(double then, double now) {
  if (std::abs(then - now) <= kNoise * now) return "would take as long";
  return fmt::format("would take {:.2f}x the time", then / now);
}

std::string alternative(const Alternative& other, const prefetch::BytesByTier& minimum,
                        double now_s) {
  std::string text = fmt::format("\noptimizer.update: {} ", schedule::name_of(other.update));
  if (other.lacks > 0) {
    text += fmt::format("would not fit, its serial minimum lacks {}", format_bytes(other.lacks));
  } else if (!other.step_s) {
    text += "is not known, a step is too long to be simulated that often";
  } else {
    text += times(*other.step_s, now_s);
    const char* needs = ", its serial minimum ";
    for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
      const Bytes then = other.minimum[index(tier)], now = minimum[index(tier)];
      if (then == now) continue;
      text += fmt::format("{}{} {} of tiers.{}", needs,
                          format_bytes(then > now ? then - now : now - then),
                          then > now ? "more" : "less", name_of(tier));
      needs = ", ";
    }
  }
  if (other.update == schedule::Update::kDelayed) {
    text += "; each update one step late, another run: docs/update.md";
  }
  if (!other.allowed) text += "; not with this run's clipping and skipping: docs/update.md";
  return text;
}

std::string offer(const Offer& offer, double now) {
  const std::string what =
      fmt::format("\n{} more of tiers.{}.limit: ", format_bytes(offer.more), name_of(offer.tier));
  if (!offer.step_s) return what + "not known, a step is too long to be simulated that often";
  if (*offer.step_s > now * (1 - kNoise)) return what + "nothing";
  return what + fmt::format("step {:.3g} -> {:.3g} s (simulated)", now, *offer.step_s);
}

}  // namespace

std::string report(const Plan& plan, std::optional<Bytes> endurance) {
  std::string text = tiers(plan) + slots(plan) + sweep(plan) + kept(plan) + moves(plan);
  const Forecast& f = plan.forecast;
  if (f.step_s <= 0) return text;
  text +=
      fmt::format("\nsimulated step: {:.3g} s, bound {} {:.0f}%, optimizer.update {}", f.seconds(),
                  f.bound, 100 * f.bound_share, schedule::name_of(plan.setup.update));
  text += drives(plan, endurance);
  return text;
}

std::string report(const Prospects& prospects, const Plan& plan) {
  std::string text;
  for (const Alternative& other : prospects.alternatives) {
    text += alternative(other, prospects.minimum, plan.forecast.step_s);
  }
  for (const Offer& o : prospects.offers) text += offer(o, plan.forecast.step_s);
  return text;
}

}  // namespace sluice::plan
