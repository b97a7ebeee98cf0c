/// How many tokens a step needs before its computing takes as long as its drives do. A private
/// header of this room.
#pragma once

#include "engine/plan/plan.h"

namespace sluice::plan {

/// What grows with micro-batches is told from what each step does once; how they wait for each
/// other is not looked at. A step without traffic of drives has 0 and 0.
Hiding hide_drives(const prefetch::Program& step, const schedule::Setup& setup,
                   const prefetch::CostModel& cost);

}  // namespace sluice::plan
