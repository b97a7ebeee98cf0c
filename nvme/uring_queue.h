/// The queue on io_uring.
#pragma once

#include <memory>
#include <string>

#include "nvme/io_queue.h"

namespace sluice::nvme {

/// Throws  kEnv when this kernel or container does not allow io_uring; the message is
/// why_no_uring()
std::unique_ptr<IoQueue> make_uring_queue(const Options& options, std::shared_ptr<KernelSeam> seam);

/// Why setting up a ring gave `error` (a positive errno), and what to change. `disabled` is the
/// number in /proc/sys/kernel/io_uring_disabled, 0 where there is no such file.
std::string why_no_uring(int error, int disabled);

}  // namespace sluice::nvme
