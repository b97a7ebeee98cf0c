/// Whether a run goes as was forecast, and its drives as they did: judged on the steps as they end.
/// What is found is said once, and again of steps that take twice what was told.
///
/// Thread  one at a time
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/metrics.h"

namespace sluice::train {

class Pace {
 public:
  /// Judged are medians of so many steps, the last ones.
  static constexpr std::size_t kFewest = 5, kMost = 15;
  static constexpr double kLate = 1.2;       ///< of what was forecast: worth a word
  static constexpr double kLater = 2;        ///< of what was told: worth another
  static constexpr double kSlowDrive = 0.6;  ///< of the rate that it had

  /// One more step like the one that was forecast: of the same program, with no other beside it,
  /// and not the first of the run. Sentences for people; most of the time none.
  std::vector<std::string> add(const data::StepRecord& step);
  /// Of a run that ends; nothing where steps were judged. `forecast`: they had one.
  std::optional<std::string> unjudged(bool forecast) const;

 private:
  /// Bytes per second while it is busy, which a lane of the drives has shown or promised.
  struct Known {
    double rate = 0;
    const char* since = "";
  };
  /// The lane that made the step late, or why none did.
  std::optional<std::string> late();
  std::optional<std::string> slow_drive();
  Known known(std::size_t drive) const;

  std::deque<data::StepRecord> steps_;
  double late_told_s_ = 0;  ///< what a step took when that was said last; 0: it was not
  bool drive_said_ = false;
  std::array<double, 2> first_{};  ///< of the drives' lanes, over the first steps
  std::array<double, 2> told_{};   ///< as late() told it; 0: it did not
};

}  // namespace sluice::train
