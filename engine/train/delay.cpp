#include "engine/train/delay.h"

#include <fmt/format.h>

#include <initializer_list>

#include "engine/base/error.h"
#include "engine/checkpoint/header.h"
#include "engine/data/learning_rate.h"
#include "engine/schedule/gradient_route.h"

namespace sluice::train {
namespace {

/// "a: 1, b: 2, as they were"; without a value what the checkpoint does not say.
std::string as_they_were(const checkpoint::Manifest& manifest,
                         std::initializer_list<const char*> keys) {
  std::string text;
  for (const std::string key : keys) {
    const auto known = manifest.settings.find(key);
    text += key + (known == manifest.settings.end() ? "" : ": " + known->second) + ", ";
  }
  return text + "as they were";
}

}  // namespace

std::int64_t delayed_start(const OptimizerOptions& options, std::int64_t steps) {
  return data::steps_of(options.delayed_update_start, steps, "optimizer.delayed_update_start");
}

bool update_waits(const checkpoint::Position& position) {
  return position.pending == checkpoint::Position::Pending::kApplied;
}

std::string describe_delay(std::int64_t start, std::int64_t steps,
                           const checkpoint::Position& position) {
  const bool waits = update_waits(position);
  std::string text;
  if (waits) {
    text = fmt::format("a gradient of step {} waits: its update is applied {}\n", position.step,
                       position.step >= steps  ? "before the final weights"
                       : position.step < start ? "before the first step"
                                               : "beside the first step");
  }
  if (start + 1 >= steps) {  // the gradient of the last step is applied before the final weights
    return text +
           fmt::format("optimizer.update is delayed from step {} on, and the run has {}: no {}\n",
                       start + 1, steps,
                       waits ? "other update is late"
                             : "update is late; lower optimizer.delayed_update_start, or set "
                               "optimizer.update: end, which takes less memory");
  }
  return text +
         fmt::format(
             "optimizer.update: delayed: from step {} on each gradient is applied one step late, "
             "so that a step computes on weights that do not know the gradient of the one before "
             "it\n",
             start + 1);
}

void check_waiting(const checkpoint::StateReader& from, const schedule::Setup& setup) {
  const checkpoint::Manifest& manifest = from.manifest();
  if (!update_waits(manifest.position)) return;
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::kConfig, fmt::format("{}: the update of step {} is still to come; {}",
                                           from.folder().string(), manifest.position.step, what));
  };
  if (!setup.delays()) {
    refuse(
        "go on with optimizer.update: delayed. With an optimizer.delayed_update_start beyond that "
        "step it is applied at once, and updates before the start are not late");
  }
  for (int s = 0; s < static_cast<int>(setup.layouts.size()); ++s) {
    const DType has = from.gradient_dtype(s), wants = schedule::gradient_route(setup, s).dtype;
    if (has != wants) {
      refuse(fmt::format("its gradient of {} is {}, this run's are {}: set {}",
                         manifest.segments[static_cast<std::size_t>(s)].name,
                         checkpoint::dtype_name(has), checkpoint::dtype_name(wants),
                         as_they_were(manifest, {"precision.compute", "precision.grad_dtype",
                                                 "train.gradient_accumulation_steps"})));
    }
    if (!setup.clips_segments && from.gradient_factor(s) != from.gradient_factor(0)) {
      refuse("its segments were clipped by themselves: set " +
             as_they_were(manifest, {"train.gradient_clipping", "train.clip_scope"}));
    }
  }
}

}  // namespace sluice::train
