#include "engine/train/loss_scale.h"

#include <algorithm>

namespace sluice::train {

std::int64_t first_loss_scale(const LossScaleOptions& options, std::int64_t saved) {
  if (options.fixed) return *options.fixed;
  return saved > 0 ? std::max(saved, options.least) : std::int64_t{1} << options.initial_power;
}

void scale_held(const LossScaleOptions& options, Control& control) {
  if (options.fixed || ++control.scale_held < options.window) return;
  control.scale_held = 0;
  if (control.loss_scale < kMostLossScale) control.loss_scale *= 2;
}

bool lower_scale(const LossScaleOptions& options, Control& control) {
  control.scale_held = 0;
  if (options.fixed || control.loss_scale <= options.least) return false;
  control.loss_scale /= 2;
  return true;
}

}  // namespace sluice::train
