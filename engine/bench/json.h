/// Results as JSON, in the shape that Google Benchmark's tools read.
///
/// Thread  any
#pragma once

#include <string>
#include <vector>

#include "engine/bench/drive_run.h"
#include "engine/bench/memory_point.h"

namespace sluice::bench {

/// {"context": {...}, "benchmarks": [...]}: a row for each run and, as aggregates, the median, the
/// spread and the drift of each point. The context is that of the first result; "targets" has each.
std::string to_json(const std::vector<DriveResult>& results);

/// The same shape, of `sluice bench VERB`.
std::string to_json(const std::string& verb, const MachineContext& machine,
                    const std::vector<MemoryRun>& runs,
                    const std::vector<MemorySummary>& summaries);

}  // namespace sluice::bench
