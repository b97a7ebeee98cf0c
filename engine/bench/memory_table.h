/// Results of memory as text and as rows of JSON. GB is 10^9 bytes.
///
/// Thread  any
#pragma once

#include <string>
#include <vector>

#include "engine/bench/memory_point.h"

namespace sluice::bench {

/// As the run file spells it.
const char* name_of(cpu_adam::Stores stores);

/// With a head; one line each, in this order.
std::string table(const std::vector<MemorySummary>& summaries);

/// The best way to update a model, what it takes for each billion parameters, and how the run file
/// says it. Empty when no update was measured.
std::string verdict(const std::vector<MemorySummary>& summaries);

}  // namespace sluice::bench
