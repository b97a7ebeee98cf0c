#include "nvme/thread_queue.h"

#include "tests/nvme/io_queue_conformance.h"
#include "tests/nvme/io_queue_faults.h"

namespace sluice::test {

template <nvme::Caching caching>
struct Threads {
  static constexpr nvme::Caching kCaching = caching;
  static auto make(const Options& options, std::shared_ptr<KernelSeam> seam) {
    return nvme::make_thread_queue(options, std::move(seam));
  }
};

using ThreadBackends =
    testing::Types<Threads<nvme::Caching::kDirect>, Threads<nvme::Caching::kPageCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(ThreadQueue, IoQueueConformance, ThreadBackends);
INSTANTIATE_TYPED_TEST_SUITE_P(ThreadQueue, IoQueueUnderFaults, ThreadBackends);

}  // namespace sluice::test
