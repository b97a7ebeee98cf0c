/// Results as text. GB is 10^9 bytes, MiB is 2^20.
///
/// Thread  any
#pragma once

#include <string>
#include <vector>

#include "engine/bench/context.h"
#include "engine/bench/drive_run.h"
#include "engine/bench/point.h"

namespace sluice::bench {

/// "io_uring 1MiB x 32 mixed".
std::string text_of(const Point& point);
/// "read 2.1 write 1.9 GB/s", of what there is.
std::string rates_text(double read_rate, double write_rate);

/// "CPU, 2 cores, Linux 6.1".
std::string text_of(const MachineContext& machine);
std::string preamble(const Context& context, const std::vector<std::string>& notes);
/// With a head; one line each, in this order.
std::string table(const std::vector<Summary>& summaries);
/// The fastest of each kind of traffic and engine.
std::vector<Summary> best_of_each(const std::vector<Summary>& summaries);
/// Which values of `aio:` the winner means, and what came of writing for long.
std::string verdict(const DriveResult& result);

}  // namespace sluice::bench
