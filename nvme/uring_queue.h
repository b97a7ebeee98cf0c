/// The queue on io_uring.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nvme/io_queue.h"

namespace sluice::nvme {

/// Throws  kEnv when this kernel or container does not allow io_uring; the message is
/// why_no_uring()
std::unique_ptr<IoQueue> make_uring_queue(const Options& options, std::shared_ptr<KernelSeam> seam);

/// What is fixed as one buffer each. The kernel tells large pages only of a buffer that has no
/// others; of all others it takes each small page for itself, of which a request of 1 MiB may have
/// more than fit into one of a drive's (a virtual one moved a tenth less then). So pages that
/// cannot be large are apart, and buffers are short, should one of the rest not be.
std::vector<std::span<std::byte>> buffers_of(std::span<std::byte> memory);

/// Why setting up a ring gave `error` (a positive errno), and what to change. `disabled` is the
/// number in /proc/sys/kernel/io_uring_disabled, 0 where there is no such file.
std::string why_no_uring(int error, int disabled);

}  // namespace sluice::nvme
