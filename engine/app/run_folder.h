/// The folder of a run. A new run never writes into an existing one.
#pragma once

#include <string>

#include "engine/config/config.h"

namespace sluice::app {

/// The config with its name decided: as given, or (auto) the run file's stem, with the first
/// counter that is free. Throws kConfig when a given name's folder exists.
config::Config choose_name(const config::Config& config, const std::string& file);

/// Creates config.output_dir and writes what is known at start: config.resolved.yaml, env.json.
/// Throws kConfig when somebody else created it meanwhile or it cannot be written.
void create_run_folder(const config::Config& config, const std::string& machine);

}  // namespace sluice::app
