/// What the process finds around itself: variables, and the machine for env.json.
#pragma once

#include <string>
#include <vector>

#include "cpu_adam/options.h"
#include "engine/base/dtype.h"
#include "engine/checkpoint/manifest.h"
#include "engine/config/config.h"
#include "engine/config/load.h"
#include "engine/doctor/finding.h"

namespace sluice::app {

/// The environment variables, for ${env:VARIABLE}.
config::Environment environment();

/// Makes malloc hold still: few arenas, pages that are in use stay, large pieces go back at once.
/// Files that grow beyond `ulimit -f` and readers that go away become errors. Before the first
/// thread.
void prepare_process();

/// Whether the processor multiplies values of this type itself, and faster than fp32; none where a
/// device does.
std::vector<doctor::Finding> products_of(DType type);

/// The numbers of threads that it asks for, where the host computes with them.
std::vector<doctor::Finding> threads_of(const config::Config& config);

/// Says where these are more than there are cores: before anything is measured with them.
void warn_of_threads(const config::Config& config);

/// Says what makes a run slower than this machine's processors could.
void warn_of_processors(DType compute);

/// On what the numbers rest beside compute.threads, for checkpoints: a run that goes on says what
/// is another. Of a device its name; of the host the CPU, its instructions, and how far LibTorch
/// and its libraries use them.
checkpoint::Settings processor_settings();

/// env.json: version, machine, device, kernel, and with what the numbers are computed: LibTorch's
/// bits hold for one CPU model, one set of code paths and one number of compute threads.
std::string describe_machine(int compute_threads, cpu_adam::Isa isa);

}  // namespace sluice::app
