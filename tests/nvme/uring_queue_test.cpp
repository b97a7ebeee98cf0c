#include "nvme/uring_queue.h"

#include "tests/nvme/io_queue_conformance.h"
#include "tests/nvme/io_queue_faults.h"

namespace sluice::test {

template <nvme::Caching caching>
struct Uring {
  static constexpr nvme::Caching kCaching = caching;
  static auto make(const Options& options, std::shared_ptr<KernelSeam> seam) {
    return nvme::make_uring_queue(options, std::move(seam));
  }
};

using UringBackends =
    testing::Types<Uring<nvme::Caching::kDirect>, Uring<nvme::Caching::kPageCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(UringQueue, IoQueueConformance, UringBackends);
INSTANTIATE_TYPED_TEST_SUITE_P(UringQueue, IoQueueUnderFaults, UringBackends);

}  // namespace sluice::test
