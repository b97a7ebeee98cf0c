/// What a run writes, beside what its disks have.
#pragma once

#include "engine/schedule/setup.h"
#include "engine/train/job.h"
#include "nvme/store.h"

namespace sluice::train {

nvme::AllowRam allow_ram(const Job& job);

/// What would be refused when the files are made, found before there is anything to remove: the
/// nvme tier, of which `stored` bytes are needed, final weights, and files of checkpoints.
///
/// Throws  kConfig and kBudget as nvme::check_folders() and check_file_size(); kBudget
void check_disks(const Job& job, const schedule::Setup& setup, Bytes stored);

}  // namespace sluice::train
