/// Updates that are one step late (ZeRO-Offload's delayed parameter update): from which step on,
/// and what a run can go on from.
#pragma once

#include <cstdint>
#include <string>

#include "engine/checkpoint/state_reader.h"
#include "engine/schedule/setup.h"
#include "engine/train/options.h"

namespace sluice::train {

/// The first step, counted from 0, whose update is late. Throws as data::steps_of().
std::int64_t delayed_start(const OptimizerOptions& options, std::int64_t steps);

/// A run that goes on from there has an update to apply. That of a skipped step changes nothing:
/// its gradient is left alone.
bool update_waits(const checkpoint::Position& position);

/// For people, lines: when what waits is applied, and what the delay does to the run's mathematics,
/// or that it never begins.
std::string describe_delay(std::int64_t start, std::int64_t steps,
                           const checkpoint::Position& position);

/// No update of the checkpoint waits, or the run can apply it. Throws kConfig.
void check_waiting(const checkpoint::StateReader& from, const schedule::Setup& setup);

}  // namespace sluice::train
