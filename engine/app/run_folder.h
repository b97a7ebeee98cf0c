/// The folder of a run. A new run never writes into an existing one.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/config.h"

namespace sluice::app {

/// The config with its name decided: as given, or (auto) the run file's stem ('_' for what a name
/// may not have), with the first counter that is free. Throws kConfig when a given name's folder
/// exists, or none can be made there.
config::Config choose_name(const config::Config& config, const std::string& file);

enum class Claim : std::uint8_t {
  kOurs,
  kTaken  ///< another run has made it since its name was chosen
};

/// Creates config.output_dir, of which only one of several runs is the maker, and writes what is
/// known at start: config.resolved.yaml, env.json. Throws kConfig when it cannot.
Claim claim_run_folder(const config::Config& config, const std::string& machine);

}  // namespace sluice::app
