/// What every step measured, for people: one line.
#pragma once

#include <cstddef>
#include <string>

#include "engine/data/metrics.h"

namespace sluice::data {

/// step 120/1000 | loss 2.1834 | gnorm 0.91 | lr 2.0e-05 | 58.3 s | 1,124 tok/s | cpu 49/64 GiB |
/// nvme r 6.4 w 4.8 GB/s, 33 TB written | bound nvme-write 92% | eta 14h12m
///
/// Parts that say nothing are left out: nvme when no byte moved, bound without a lane, eta without
/// a mean step time and at the last step. After the loss of a step with an evaluation stands
/// `valid 2.2010`, after the norm of one whose update was not applied `skipped`, of one whose
/// update is one step late `delayed`.
std::string step_line(const StepRecord& record);

/// "58.3 s", "1.42 s", "0.058 s"
std::string format_seconds(double value);

/// How far the run is, in at most `columns` characters, for a line that is rewritten in place:
/// [=====>              ] 120/1000 | eta 14h12m | bound nvme-write 92% | loss 2.1834
std::string progress_line(const StepRecord& record, std::size_t columns);

}  // namespace sluice::data
