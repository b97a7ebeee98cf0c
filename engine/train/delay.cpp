#include "engine/train/delay.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/checkpoint/header.h"
#include "engine/data/learning_rate.h"
#include "engine/schedule/gradient_route.h"

namespace sluice::train {

std::int64_t delayed_start(const OptimizerOptions& options, std::int64_t steps) {
  return data::steps_of(options.delayed_update_start, steps, "optimizer.delayed_update_start");
}

std::string describe_delay(std::int64_t start, std::int64_t steps) {
  if (start >= steps) {
    return fmt::format(
        "optimizer.update is delayed from step {} on, and the run has {}: no update is late; "
        "lower optimizer.delayed_update_start\n",
        start + 1, steps);
  }
  return fmt::format(
      "optimizer.update: delayed: from step {} on each gradient is applied one step late, so that "
      "a step computes on weights that do not know the gradient of the one before it\n",
      start + 1);
}

void check_waiting(const checkpoint::StateReader& from, const schedule::Setup& setup) {
  const checkpoint::Manifest& manifest = from.manifest();
  if (!from.has_gradients()) return;
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
      refuse(
          fmt::format("its gradient of {} is {}, this run's are {}: set "
                      "train.gradient_accumulation_steps and precision.grad_dtype as they were",
                      manifest.segments[static_cast<std::size_t>(s)].name,
                      checkpoint::dtype_name(has), checkpoint::dtype_name(wants)));
    }
    if (!setup.clips_segments && from.gradient_factor(s) != from.gradient_factor(0)) {
      refuse("its segments were clipped by themselves: set train.clip_scope: segment");
    }
  }
}

}  // namespace sluice::train
