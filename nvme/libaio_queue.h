/// The queue on the kernel's older interface, for machines without io_uring.
#pragma once

#include <memory>

#include "nvme/io_queue.h"

namespace sluice::nvme {

/// Throws  kEnv when the kernel has none left (fs.aio-max-nr), or a container does not allow it
std::unique_ptr<IoQueue> make_libaio_queue(const Options& options,
                                           std::shared_ptr<KernelSeam> seam);

}  // namespace sluice::nvme
