/// The queue for machines without io_uring: pread and pwrite on a pool of threads.
#pragma once

#include <memory>

#include "nvme/io_queue.h"

namespace sluice::nvme {

/// `options.threads` threads for reads and as many for writes, at most `queue_depth` each; without
/// a number, 8.
std::unique_ptr<IoQueue> make_thread_queue(const Options& options,
                                           std::shared_ptr<KernelSeam> seam);

}  // namespace sluice::nvme
