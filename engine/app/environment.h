/// What the process finds around itself: variables, and the machine for env.json.
#pragma once

#include <string>

#include "engine/config/load.h"

namespace sluice::app {

/// The environment variables, for ${env:VARIABLE}.
config::Environment environment();

/// Makes sure that the variables LibTorch needs before the process starts are set: when one is
/// missing it sets it and starts the program again in its place. Does not return in that case.
void require_process_environment(char** argv);

/// Makes malloc hold still: few arenas, pages that are in use stay, large pieces go back at once.
/// Files that grow beyond `ulimit -f` and readers that go away become errors. Before the first
/// thread.
void prepare_process();

/// env.json: version, machine, device, kernel.
std::string describe_machine();

}  // namespace sluice::app
