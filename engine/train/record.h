/// The small numbers that control a run, as bytes in buffers of the program.
#pragma once

#include <cstdint>
#include <type_traits>

namespace sluice::train {

/// What crosses steps.
struct Control {
  std::int64_t applied = 0;         ///< updates applied so far: Adam's t
  std::int64_t skipped_in_row = 0;  ///< since the last applied one, but for what lowered the scale
  std::int64_t loss_scale = 1;      ///< of the next step
  std::int64_t scale_held = 0;      ///< updates applied with it since it was last changed
};

/// What was decided, of a step or of one segment; its update derives from nothing else.
struct Record {
  std::int64_t step = 0;  ///< steps before this one
  std::int64_t t = 0;     ///< of this update, if it is applied
  float lr = 0;
  float bias_correction1 = 1;
  float bias_correction2 = 1;
  float clip = 1;       ///< factor on the gradient, which holds the loss scale
  bool applied = true;  ///< else the step is skipped: its update does nothing
};

/// What a checkpoint knows one chunk of a gradient by that waits.
struct GradientReceipt {
  std::uint64_t sum = 0;
  float factor = 1;  ///< Record::clip of its segment
  float lr = 0;
  bool applied = true;
};

static_assert(std::is_trivially_copyable_v<Control> && sizeof(Control) <= 256);
static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) <= 256);

}  // namespace sluice::train
