/// Short hand for plans of tiny models.
#pragma once

#include <array>
#include <string>

#include "engine/base/error.h"
#include "engine/plan/plan.h"
#include "engine/plan/rates.h"
#include "tests/schedule/placements.h"

namespace sluice::testing {

using plan::Limits;
using plan::Plan;
using plan::require_minimum;
using plan::Slots;
using prefetch::BytesByTier;
using prefetch::kTiers;
using prefetch::MemoryTag;
using prefetch::Tier;
using schedule::ActivationHome;
using schedule::GradientHome;
using schedule::OptimizerHome;
using schedule::ParamHome;
using schedule::Setup;
using schedule::Sharing;

inline constexpr Limits kPlenty{{1ULL << 40, 1ULL << 40, 1ULL << 40}, plan::kEndless};

/// So much of each tier, which share no memory.
inline Limits just(const BytesByTier& tiers) {
  return {tiers, plan::kEndless};
}

/// A slow machine, so that the bytes of tiny models take time: every lane has work.
inline prefetch::CostModel slow_machine() {
  plan::Rates rates;
  rates.copy = rates.adam = rates.sums = rates.device_sums = rates.first_values = 1e6;
  rates.nvme_read = {0.5e6, 1e6};
  rates.nvme_write = {0.4e6, 0.8e6};
  rates.flops = 2e9;
  rates.op_s = 1e-4;
  return plan::cost_model(rates, schedule::make_lanes());
}

inline Plan make_plan(const Setup& setup, const Limits& limits,
                      std::int64_t evaluation_batches = 0) {
  return plan::make_plan(setup, limits, evaluation_batches, slow_machine());
}

inline plan::Prospects prospects(const Plan& plan, const Setup& asked) {
  return plan::prospects(plan, asked, 0, slow_machine());
}

}  // namespace sluice::testing
