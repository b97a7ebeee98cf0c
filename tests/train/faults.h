/// Runs that are disturbed, and how they end.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/error.h"
#include "tests/support/faulty_queue.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {

namespace fs = std::filesystem;

/// How a run ended: no code when it went well.
struct Ending {
  std::optional<Errc> code;
  std::string message;
};
Ending ending_of(const std::function<void()>& work);

/// Neither weights nor the folder they were being written to, nor anything in the nvme tier's;
/// checkpoints that are whole at most.
void expect_nothing_left(const Job& job);

/// Two steps whose optimizer state is on "nvme".
Job nvme_job(const TempFolder& folder, Execution execution);

/// Puts the faults between the store and the kernel; what was injected is known after the run.
std::shared_ptr<std::shared_ptr<const test::FaultySeam>> inject(Job& job,
                                                                const test::Faults& faults);

}  // namespace sluice::train
