#include "engine/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/draft.h"

namespace sluice::plan {
namespace {

using prefetch::MemoryTag;
using prefetch::Tier;

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

/// The first tier that cannot hold its part of the serial minimum. None: gpu and cpu cannot
/// together.
std::optional<Tier> short_tier(const Plan& draft, const Limits& limits) {
  for (const Tier tier : prefetch::kTiers) {
    if (missing_in(tier, draft, limits) > 0) return tier;
  }
  return std::nullopt;
}

/// The first line: what is short, by how much.
std::string shortage(std::optional<Tier> tier, const Plan& draft) {
  const Bytes bytes =
      tier ? missing_in(*tier, draft, draft.limits) : missing_of_host(draft, draft.limits);
  const std::string what =
      tier ? fmt::format("the {} tier is too small", name_of(*tier))
           : std::string("the host memory is too small for the gpu and the cpu tier");
  return fmt::format("{}: the smallest plan is {} ({} B) short", what, format_bytes(bytes), bytes);
}

/// "raise tiers.cpu.limit, tiers.nvme.limit".
std::string raise(const Plan& draft) {
  std::string text;
  for (const Tier tier : prefetch::kTiers) {
    if (missing_in(tier, draft, draft.limits) == 0) continue;
    text += fmt::format("{} tiers.{}.limit", text.empty() ? "raise" : ",", name_of(tier));
  }
  return text.empty() ? "free host memory" : text;
}

/// What helps when no placement does: it depends on what there is most of.
std::string advice(std::optional<Tier> tier, const Plan& draft) {
  if (tier == Tier::kNvme) return "free space there or name more tiers.nvme.paths";
  const BytesByTag bytes = bytes_by_tag(draft, tier);
  const auto most = std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
  switch (static_cast<MemoryTag>(most)) {
    case MemoryTag::kParam:
    case MemoryTag::kGradient:
    case MemoryTag::kState:
      return "use a smaller model";
    case MemoryTag::kControl:
      return "lower eval.batches or train.gradient_accumulation_steps";
    case MemoryTag::kActivation:
    case MemoryTag::kKept:
    case MemoryTag::kWorkspace:
    case MemoryTag::kBatch:
      return draft.setup.sweep > 1
                 ? "lower train.gradient_accumulation_steps, train.train_micro_batch_size_per_gpu "
                   "or data.seq_len"
                 : "lower train.train_micro_batch_size_per_gpu or data.seq_len";
  }
  return "";
}

constexpr const char* kRow = "\n  {:<16}{:>14}{:>14}{:>14}";

/// What each memory needs and has; of one that is short, by class of bytes.
std::string table(const Plan& draft) {
  const Limits& limits = draft.limits;
  std::string text = fmt::format(kRow, "", "needs", "has", "short");
  const auto row = [&](std::string_view name, Bytes needs, Bytes has, Bytes lacks) {
    text += fmt::format(kRow, name, format_bytes(needs),
                        has == kEndless ? "no limit" : format_bytes(has), format_bytes(lacks));
  };
  for (const Tier tier : prefetch::kTiers) {
    const Bytes needs = draft.minimum[index(tier)];
    const Bytes lacks = missing_in(tier, draft, limits);
    if (needs == 0) continue;
    row(name_of(tier), needs, limits.tiers[index(tier)], lacks);
    if (lacks == 0 && missing_of_host(draft, limits) == 0) continue;
    const BytesByTag bytes = bytes_by_tag(draft, tier);
    for (std::size_t tag = 0; tag < bytes.size(); ++tag) {
      if (bytes[tag] == 0) continue;
      text += fmt::format("\n    {:<16}{:>12}", name_of(static_cast<MemoryTag>(tag)),
                          format_bytes(bytes[tag]));
    }
  }
  if (const Bytes lacks = missing_of_host(draft, limits); lacks > 0) {
    row("gpu + cpu", draft.minimum[index(Tier::kGpu)] + draft.minimum[index(Tier::kCpu)],
        limits.host, lacks);
  }
  return text;
}

/// The settings of another placement, one a line.
std::string listed(const Plan& draft, const Plan& other) {
  std::string text;
  for (const std::string& line : settings(draft.setup.homes, other.setup.homes)) {
    text += "\n    " + line;
  }
  return text;
}

/// What the nearest placement lacks, one memory a line.
std::string lacks(const Plan& nearest) {
  std::string text;
  for (const Tier tier : prefetch::kTiers) {
    const Bytes bytes = missing_in(tier, nearest, nearest.limits);
    if (bytes == 0) continue;
    text += fmt::format("\n    {} in the {} tier", format_bytes(bytes), name_of(tier));
  }
  if (!text.empty()) return text;
  return fmt::format("\n    {} of the host memory that the gpu and the cpu tier share",
                     format_bytes(missing_of_host(nearest, nearest.limits)));
}

}  // namespace

Error refusal(const Plan& draft, const Search& found) {
  const std::optional<Tier> tier = short_tier(draft, draft.limits);
  std::string text = shortage(tier, draft) + "\n" + raise(draft);
  std::string below = table(draft);
  std::vector<std::string> also;
  if (found.fitting) {
    if (tier == Tier::kNvme) text += ", free space there, name more tiers.nvme.paths";
    text += ", or set what stands below the table, which fits";
    below += "\n  set" + listed(draft, *found.fitting);
  } else {
    text += ", or " + advice(tier, draft);
    also.emplace_back(found.complete ? "no placement fits" : "not every placement was looked at");
    if (const std::string nearest = listed(draft, found.nearest); !nearest.empty()) {
      below += "\n  the nearest placement" + nearest + "\n  lacks" + lacks(found.nearest);
    }
  }
  if (found.update) {
    below += fmt::format("\n  optimizer.update: {} would fit as it is (docs/update.md)",
                         schedule::name_of(*found.update));
  }
  if (draft.setup.workspace == 0 && tier.value_or(Tier::kGpu) == Tier::kGpu) {
    also.emplace_back("a workspace comes on top, which is measured when the rest fits");
  }
  if (draft.setup.sweep > 1) {
    also.push_back(fmt::format(
        "with optimizer.update: {} all {} micro-batches of a step go through the layers together",
        schedule::name_of(draft.setup.update), draft.setup.sweep));
  }
  if (!also.empty()) text += fmt::format("\n{}", fmt::join(also, "; "));
  return {Errc::kBudget, text + below};
}

}  // namespace sluice::plan
