/// From the run file to a run: the one place where a Config becomes options of rooms.
#pragma once

#include <string>

#include "engine/config/config.h"
#include "engine/train/job.h"

namespace sluice::app {

/// `folder` is the run's. Throws kConfig when what the run file names is no model.
train::Job job_of(const config::Config& config, const std::string& folder);

}  // namespace sluice::app
