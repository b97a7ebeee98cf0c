/// The loss scale of fp16, whose numbers end at 65504 and fade out below 6e-5: small gradients
/// would be lost, so they are computed of a multiple of the loss. How large it may be is tried:
/// half of it after a gradient that overflowed, the double after many that did not.
///
/// A power of two: it rounds nothing that fp16 can hold, and taking it off again rounds nothing.
///
/// Paper  Micikevicius et al., Mixed Precision Training, 2018, section 3.2
#pragma once

#include <cstdint>

#include "engine/train/options.h"
#include "engine/train/record.h"

namespace sluice::train {

/// Of a run's first step; `saved`: of the checkpoint that it goes on from, 0 = none was tried
/// there.
std::int64_t first_loss_scale(const LossScaleOptions& options, std::int64_t saved);

/// The step's update is applied.
void scale_held(const LossScaleOptions& options, Control& control);

/// The step's gradient overflowed. false: no smaller scale may be tried.
bool lower_scale(const LossScaleOptions& options, Control& control);

}  // namespace sluice::train
