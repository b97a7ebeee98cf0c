#include <fmt/format.h>

#include "engine/plan/plan.h"

namespace sluice::plan {

std::string report(const Plan& plan) {
  using prefetch::Tier;
  std::string text;
  for (const Tier tier : {Tier::kGpu, Tier::kCpu, Tier::kNvme}) {
    const auto i = static_cast<std::size_t>(tier);
    if (plan.planned[i] == 0) continue;
    text += fmt::format("{}{:<4} tier: serial minimum {}, planned {} of {}",
                        text.empty() ? "" : "\n", name_of(tier), format_bytes(plan.minimum[i]),
                        format_bytes(plan.planned[i]), format_bytes(plan.limits[i]));
    const bool tight = tier == Tier::kGpu && plan.limits[i] < plan.minimum[i] + plan.minimum[i] / 2;
    if (tight) text += "; tight: about 1.5 times the minimum buys full overlap";
  }
  return text;
}

}  // namespace sluice::plan
