#include "nvme/uring_queue.h"

#include <cstddef>
#include <span>
#include <vector>

#include "engine/base/pages.h"
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

/// Of a mapping that is no multiple of a large page the end has small pages only.
TEST(UringBuffers, HaveLargePagesOrNone) {
  const PageBytes pages = take_pages(150_MiB + 12_KiB);
  const std::span all(pages.get(), 150_MiB + 12_KiB);
  const std::span<std::byte> memory = all.subspan(4_KiB);
  const std::vector<std::span<std::byte>> buffers = nvme::buffers_of(memory);
  const std::byte* at = memory.data();
  for (const std::span<std::byte> buffer : buffers) {
    EXPECT_EQ(buffer.data(), at) << "none is left out";
    EXPECT_LE(buffer.size(), 64_MiB);
    at += buffer.size();
  }
  EXPECT_EQ(at, memory.data() + memory.size());
  std::vector<Bytes> sizes;
  for (const std::span<std::byte> buffer : buffers) sizes.push_back(buffer.size());
  EXPECT_EQ(sizes, (std::vector<Bytes>{kLargePage - 4_KiB, 64_MiB, 64_MiB, 20_MiB, 12_KiB}));
}

TEST(UringBuffers, OfSmallPagesAreOne) {
  const PageBytes pages = take_pages(4 * kLargePage);
  const std::span all(pages.get(), 4 * kLargePage);
  EXPECT_EQ(nvme::buffers_of(all.first(12_KiB)).size(), 1U);
  EXPECT_TRUE(nvme::buffers_of({}).empty());
}

}  // namespace sluice::test
