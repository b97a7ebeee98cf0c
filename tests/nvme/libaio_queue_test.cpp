#include "nvme/libaio_queue.h"

#include "tests/nvme/io_queue_conformance.h"
#include "tests/nvme/io_queue_faults.h"

namespace sluice::test {

template <nvme::Caching caching>
struct Libaio {
  static constexpr nvme::Caching kCaching = caching;
  static auto make(const Options& options, std::shared_ptr<KernelSeam> seam) {
    return nvme::make_libaio_queue(options, std::move(seam));
  }
};

using LibaioBackends =
    testing::Types<Libaio<nvme::Caching::kDirect>, Libaio<nvme::Caching::kPageCache>>;
INSTANTIATE_TYPED_TEST_SUITE_P(LibaioQueue, IoQueueConformance, LibaioBackends);
INSTANTIATE_TYPED_TEST_SUITE_P(LibaioQueue, IoQueueUnderFaults, LibaioBackends);

}  // namespace sluice::test
