#include "engine/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "engine/plan/draft.h"
#include "engine/schedule/ops.h"

namespace sluice::plan {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;
using schedule::ActivationHome;
using schedule::GradientHome;
using schedule::OptimizerHome;
using schedule::ParamHome;
using schedule::Recompute;
using schedule::Setup;

/// Chunks of a suggested placement where the file's own would be too large.
constexpr Bytes kSmallChunk = 4_MiB;

using BytesByTag = std::array<Bytes, prefetch::kMemoryTags>;

BytesByTag bytes_by_tag(const Plan& draft, Tier tier) {
  BytesByTag bytes{};
  for (std::size_t i = 0; i < draft.catalog.pools.size(); ++i) {
    const auto& pool = draft.catalog.pools[i];
    if (pool.tier != tier) continue;
    bytes[static_cast<std::size_t>(draft.catalog.tags[i])] += pool.slot * pool.slots;
  }
  return bytes;
}

/// Of the tier that is short, or of the two that share one memory.
BytesByTag bytes_by_tag(const Plan& draft, std::optional<Tier> tier) {
  if (tier) return bytes_by_tag(draft, *tier);
  BytesByTag bytes = bytes_by_tag(draft, Tier::kGpu);
  const BytesByTag cpu = bytes_by_tag(draft, Tier::kCpu);
  for (std::size_t tag = 0; tag < bytes.size(); ++tag) bytes[tag] += cpu[tag];
  return bytes;
}

/// "parameters 1.0 GiB, activations 20.0 MiB".
std::string classes(const BytesByTag& bytes) {
  std::string text;
  for (std::size_t tag = 0; tag < bytes.size(); ++tag) {
    if (bytes[tag] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(static_cast<MemoryTag>(tag)),
                        format_bytes(bytes[tag]));
  }
  return text;
}

/// What the sum does not count yet.
std::string unmeasured(const Plan& draft) {
  return draft.setup.workspace > 0 ? ""
                                   : ", and by a workspace, which is measured when the rest fits";
}

/// Every other placement of the same step.
std::vector<Setup> alternatives(const Setup& setup) {
  std::vector<Setup> all;
  for (const auto param : {ParamHome::kNone, ParamHome::kCpu, ParamHome::kNvme}) {
    for (const auto gradient : {GradientHome::kNone, GradientHome::kCpu}) {
      for (const auto state : {OptimizerHome::kCpu, OptimizerHome::kNvme}) {
        for (const auto activation :
             {ActivationHome::kNone, ActivationHome::kCpu, ActivationHome::kNvme}) {
          Setup other = setup;
          other.homes.offload_param = param;
          other.homes.offload_gradient = gradient;
          other.homes.offload_optimizer = state;
          other.homes.offload_activation = activation;
          if (other.homes.recompute == Recompute::kNone) other.homes.recompute = Recompute::kAuto;
          other.kept_layers = 0;
          all.push_back(std::move(other));
        }
      }
    }
  }
  return all;
}

/// Bytes that one step moves between tiers.
double traffic(const Plan& draft) {
  using schedule::LaneKind;
  double bytes = 0;
  for (const prefetch::Op& op : draft.programs.step->ops()) {
    for (const LaneKind lane : {LaneKind::kHostToDevice, LaneKind::kDeviceToHost,
                                LaneKind::kNvmeRead, LaneKind::kNvmeWrite}) {
      if (op.lane == schedule::lane_of(lane)) bytes += op.cost.bytes;
    }
  }
  return bytes;
}

/// "1.0 GiB in the cpu tier, 2.0 GiB in the nvme tier".
std::string lacks(const Plan& draft, const Limits& limits) {
  std::string text;
  for (const Tier tier : prefetch::kTiers) {
    const Bytes short_by = missing_in(tier, draft, limits);
    if (short_by == 0) continue;
    text += fmt::format("{}{} in the {} tier", text.empty() ? "" : ", ", format_bytes(short_by),
                        name_of(tier));
  }
  if (!text.empty()) return text;
  return fmt::format("{} of the host memory that the gpu and the cpu tier share",
                     format_bytes(missing_of_host(draft, limits)));
}

const char* word(ParamHome home) {
  return home == ParamHome::kNone ? "none" : home == ParamHome::kCpu ? "cpu" : "nvme";
}
const char* word(GradientHome home) {
  return home == GradientHome::kNone ? "none" : "cpu";
}
const char* word(OptimizerHome home) {
  return home == OptimizerHome::kCpu ? "cpu" : "nvme";
}
const char* word(ActivationHome home) {
  return home == ActivationHome::kNone ? "none" : home == ActivationHome::kCpu ? "cpu" : "nvme";
}

/// The settings in which two placements differ, as they stand in the file.
std::string settings(const schedule::Options& from, const schedule::Options& to) {
  std::string text;
  const auto differ = [&](const char* name, const auto& a, const auto& b) {
    if (a == b) return;
    text += fmt::format("{}zero_optimization.{}.device: {}", text.empty() ? "set " : ", ", name,
                        word(b));
  };
  differ("offload_param", from.offload_param, to.offload_param);
  differ("offload_gradient", from.offload_gradient, to.offload_gradient);
  differ("offload_optimizer", from.offload_optimizer, to.offload_optimizer);
  differ("offload_activation", from.offload_activation, to.offload_activation);
  if (from.recompute != to.recompute) {
    text += fmt::format("{}activation_checkpointing.policy: auto", text.empty() ? "set " : ", ");
  }
  if (from.sub_group_size != to.sub_group_size) {
    text += fmt::format("{}zero_optimization.sub_group_size: {}MiB", text.empty() ? "set " : ", ",
                        *to.sub_group_size >> 20);
  }
  return text;
}

/// What helps when no placement does: it depends on what there is most of.
std::string other_advice(std::optional<Tier> tier, const BytesByTag& bytes) {
  if (tier == Tier::kNvme) return "free space there or name more tiers.nvme.paths";
  const auto most = std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
  switch (static_cast<MemoryTag>(most)) {
    case MemoryTag::kParam:
    case MemoryTag::kGradient:
    case MemoryTag::kState:
      return "use a smaller model";
    case MemoryTag::kControl:
      return "lower eval.batches or train.gradient_accumulation_steps, or use a smaller model";
    default:
      return "lower train.train_micro_batch_size_per_gpu or data.seq_len, or use a smaller model";
  }
}

struct Search {
  std::optional<Plan> fitting;  ///< with the least traffic
  Plan smallest;                ///< lacks the least
};

/// Each placement is tried with the chunks of the draft, and with small ones if it needs them and
/// there are not too many.
Search search(const Plan& draft, const Limits& limits, std::int64_t evaluation_batches) {
  Search found{std::nullopt, draft};
  double least = std::numeric_limits<double>::infinity();
  for (const Setup& other : alternatives(draft.setup)) {
    std::vector<Setup> cuts = {other};
    if (other.homes.sub_group_size.value_or(0) > kSmallChunk) {
      Setup small = schedule::with_chunks(other, kSmallChunk);
      if (small.chunk_count() <= kEnoughChunks) cuts.push_back(std::move(small));
    }
    for (const Setup& cut : cuts) {
      Plan plan = write_draft(cut, evaluation_batches);
      const Bytes lacking = missing(plan, limits);
      if (lacking < missing(found.smallest, limits)) found.smallest = plan;
      if (lacking > 0) continue;
      const double moved = traffic(plan);
      if (moved < least) {
        least = moved;
        found.fitting = std::move(plan);
      }
      break;
    }
  }
  return found;
}

/// The first tier that cannot hold its part of the serial minimum. None: gpu and cpu cannot
/// together.
std::optional<Tier> short_tier(const Plan& draft, const Limits& limits) {
  for (const Tier tier : prefetch::kTiers) {
    if (missing_in(tier, draft, limits) > 0) return tier;
  }
  return std::nullopt;
}

std::string short_by(Bytes bytes) {
  return fmt::format("{} ({} B) short", format_bytes(bytes), bytes);
}

std::string too_small(Tier tier, const Plan& draft, const Limits& limits) {
  std::string text = fmt::format(
      "the {} tier is too small: the smallest plan needs {} ({}), tiers.{}.limit gives {}: {}",
      name_of(tier), format_bytes(draft.minimum[index(tier)]), classes(bytes_by_tag(draft, tier)),
      name_of(tier), format_bytes(limits.tiers[index(tier)]),
      short_by(missing_in(tier, draft, limits)));
  if (tier == Tier::kGpu) text += unmeasured(draft);
  text += "; raise the limit";
  for (const Tier other : prefetch::kTiers) {
    const Bytes bytes = missing_in(other, draft, limits);
    if (other == tier || bytes == 0) continue;
    text += fmt::format(" (tiers.{}.limit too, by {})", name_of(other), format_bytes(bytes));
  }
  return text;
}

std::string too_small_together(const Plan& draft, const Limits& limits) {
  const auto needs = [&](Tier tier) {
    return fmt::format("{} for the {} tier ({})", format_bytes(draft.minimum[index(tier)]),
                       name_of(tier), classes(bytes_by_tag(draft, tier)));
  };
  return fmt::format(
      "the host memory is too small: the smallest plan needs {} and {}, and the device computes in "
      "host memory, where there are {} for both: {}{}; free host memory",
      needs(Tier::kGpu), needs(Tier::kCpu), format_bytes(limits.host),
      short_by(missing_of_host(draft, limits)), unmeasured(draft));
}

}  // namespace

Refusal refusal(const Plan& draft, std::int64_t evaluation_batches) {
  const Limits& limits = draft.limits;
  const std::optional<Tier> tier = short_tier(draft, limits);
  std::string text = tier ? too_small(*tier, draft, limits) : too_small_together(draft, limits);
  const Search found = search(draft, limits, evaluation_batches);
  if (found.fitting) {
    return {{Errc::kBudget, fmt::format("{}, or {}, which fits", text,
                                        settings(draft.setup.homes, found.fitting->setup.homes))},
            true};
  }
  text += fmt::format(", or {}; no placement fits", other_advice(tier, bytes_by_tag(draft, tier)));
  const std::string nearest = settings(draft.setup.homes, found.smallest.setup.homes);
  if (!nearest.empty()) {
    text += fmt::format("; the nearest: {}, lacks {}", nearest, lacks(found.smallest, limits));
  }
  return {{Errc::kBudget, text}, false};
}

}  // namespace sluice::plan
