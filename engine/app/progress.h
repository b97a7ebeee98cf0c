/// What a run says of each step: lines, or one line that is rewritten in place.
#pragma once

#include <cstdint>

#include "engine/config/config.h"
#include "engine/data/metrics.h"

namespace sluice::app {

/// Thread  one
class Progress {
 public:
  /// With a bar, the terminal gets lines only of steps that are out of the ordinary (evaluated,
  /// skipped, the last); train.log gets all of them either way.
  explicit Progress(const config::LoggingOptions& options);
  /// Takes the bar away.
  ~Progress();
  Progress(Progress&&) = delete;

  void step(const data::StepRecord& record) const;

 private:
  const std::int64_t log_every_;
  const bool bar_;
};

}  // namespace sluice::app
